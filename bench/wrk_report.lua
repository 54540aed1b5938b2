-- Prints wrk's own numbers as one line of JSON. Has no request or response hook, so no Lua runs while it measures.

function done(summary, latency, _)
    local errors = summary.errors
    io.write(
        string.format(
            '{"requests":%.0f,"duration_us":%.0f,"bytes":%.0f,"p50_us":%.0f,"p99_us":%.0f,'
                .. '"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
            summary.requests, summary.duration, summary.bytes, latency:percentile(50), latency:percentile(99),
            errors.connect, errors.read, errors.write, errors.status, errors.timeout
        )
    )
end
