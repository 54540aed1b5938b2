// Answers /api/ping from a script, so that one request tries the whole path: TLS, parser, script machine.
#include "zeroserve.h"

ZS_ENTRY zs_u64 ping(void) {
    char path[16];
    if (zs_req_normalized_path(path, sizeof(path)) != 9 || zs_strcmp(path, "/api/ping") != 0) {
        return 0;
    }
    zs_meta_set(ZS_STR("zs.response.header.content-type"), ZS_STR("application/json"));
    zs_meta_set(ZS_STR("zs.response.header.cache-control"), ZS_STR("no-store"));
    zs_respond(200, ZS_STR("{\"status\":\"ok\"}"));
    return 0;
}
