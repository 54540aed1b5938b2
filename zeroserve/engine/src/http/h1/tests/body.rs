//! Request bodies: by length and chunked, whole and in pieces, well-formed and not.

use super::Numbers;
use crate::http::h1::{BodyEvent, BodyFraming, BodyReader, Reject};

/// Feeds pieces until the body ends. Returns the content, the bytes used, and whether it ended.
fn read<'a>(
    framing: BodyFraming,
    max_bytes: u64,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, usize, bool), Reject> {
    let mut reader = BodyReader::new(framing, max_bytes)?;
    let (mut content, mut used) = (Vec::new(), 0);
    for mut piece in pieces {
        loop {
            let (consumed, event) = reader.feed(piece)?;
            used += consumed;
            match event {
                BodyEvent::Data(bytes) => content.extend_from_slice(bytes),
                BodyEvent::End => return Ok((content, used, true)),
                BodyEvent::NeedMore => {
                    assert_eq!(consumed, piece.len(), "asks for more with input left");
                    break;
                }
            }
            piece = &piece[consumed..];
        }
    }
    Ok((content, used, false))
}

#[test]
fn bodies_end_where_their_framing_says() {
    use BodyFraming::{Chunked, Length, None as NoBody};
    // framing, input, content, bytes used, whether the body ends
    type Row<'a> = (BodyFraming, &'a [u8], &'a [u8], usize, bool);
    let table: &[Row] = &[
        (NoBody, b"GET", b"", 0, true),
        (Length(0), b"GET", b"", 0, true),
        (Length(3), b"abcGET", b"abc", 3, true),
        (Length(3), b"ab", b"ab", 2, false),
        (Chunked, b"0\r\n\r\nGET", b"", 5, true),
        (Chunked, b"3\r\nabc\r\n0\r\n\r\nGET", b"abc", 13, true),
        (Chunked, b"3\r\nabc\r\n2\r\n\r\n\r\n0\r\n\r\n", b"abc\r\n", 20, true),
        (Chunked, b"003\r\nabc\r\n000\r\n\r\n", b"abc", 17, true),
        (Chunked, b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", 20, true),
        (Chunked, b"3;a=b;c=\"d e\"\r\nabc\r\n0;x\r\n\r\n", b"abc", 27, true),
        (Chunked, b"1\r\na\r\n0\r\nExpires: never\r\nX-Sum:\r\n\r\nGET", b"a", 35, true),
        (Chunked, b"3\r\nabc\r\n0\r\n\r", b"abc", 12, false),
    ];
    for (framing, input, content, used, ended) in table {
        let shown = input.escape_ascii().to_string();
        assert_eq!(read(*framing, 1000, [*input]), Ok((content.to_vec(), *used, *ended)), "{shown:?}");
        for split in 0..=input.len() {
            let (first, second) = input.split_at(split);
            let result = read(*framing, 1000, [first, second]);
            assert_eq!(result, Ok((content.to_vec(), *used, *ended)), "{shown:?} split at {split}");
        }
        assert_eq!(
            read(*framing, 1000, input.chunks(1)),
            Ok((content.to_vec(), *used, *ended)),
            "{shown:?} by bytes"
        );
    }
}

#[test]
fn malformed_chunks_are_refused() {
    let table: &[&[u8]] = &[
        b"\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"+1\r\na\r\n",
        b"0x1\r\na\r\n",
        b" 1\r\na\r\n",
        b"1 \r\na\r\n",
        b"1\t;x\r\na\r\n",
        b"1\na\r\n",
        b"1\r\na\n0\r\n\r\n",
        b"1\r\nab\r\n",
        b"1\r\na0\r\n\r\n",
        b"1\ra\r\n",
        b";x\r\n",
        b"1;x\ny\r\na\r\n",
        b"1;\x00\r\na\r\n",
        b"1;a\rb\r\n",
        b"11111111111111111\r\n",
        b"0\r\n X: y\r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\n: y\r\n\r\n",
        b"0\r\nX\r\n\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\nX: \x00\r\n\r\n",
        b"0\r\n\rX",
        b"0\r\n\n",
    ];
    for input in table {
        let shown = input.escape_ascii().to_string();
        for pieces in [vec![*input], input.chunks(1).collect()] {
            let result = read(BodyFraming::Chunked, u64::MAX, pieces);
            assert_eq!(result.map_err(|reject| reject.status), Err(400), "{shown:?}");
        }
    }
}

#[test]
fn bodies_above_the_limit_are_refused_before_they_are_read() {
    let status = |framing, input: &[u8]| read(framing, 10, [input]).map_err(|reject| reject.status);
    assert_eq!(status(BodyFraming::Length(11), b""), Err(413));
    assert_eq!(status(BodyFraming::Length(10), b"0123456789"), Ok((b"0123456789".to_vec(), 10, true)));
    assert_eq!(status(BodyFraming::Chunked, b"B\r\n"), Err(413));
    assert_eq!(status(BodyFraming::Chunked, b"6\r\nabcdef\r\n5\r\n"), Err(413));
    assert_eq!(status(BodyFraming::Chunked, b"ffffffffffffffff\r\n"), Err(413));
    assert_eq!(
        status(BodyFraming::Chunked, b"6\r\nabcdef\r\n4\r\nghij\r\n0\r\n\r\n").map(|(_, used, _)| used),
        Ok(25)
    );
}

#[test]
fn framing_that_outweighs_the_body_is_refused() {
    let long_extension = format!("1;{}\r\na\r\n", "x".repeat(2000));
    let many_extensions = format!("1;{}\r\na\r\n", "x".repeat(1000)).repeat(20);
    let many_trailers = format!("0\r\n{}\r\n", "X-Trailer: 0123456789\r\n".repeat(1000));
    for input in [long_extension, many_extensions, many_trailers] {
        let result = read(BodyFraming::Chunked, u64::MAX, [input.as_bytes()]);
        assert_eq!(result.map_err(|reject| reject.status), Err(413), "{:.20}", input);
    }
}

#[test]
fn any_chunking_gives_the_same_content() {
    let mut numbers = Numbers(0xb0d1);
    for _ in 0..500 {
        let content: Vec<u8> = (0..numbers.below(300)).map(|_| numbers.next() as u8).collect();
        let mut wire = Vec::new();
        let mut rest = &content[..];
        while !rest.is_empty() {
            let (chunk, tail) = rest.split_at(1 + numbers.below(rest.len()));
            wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
            rest = tail;
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        let pieces = wire.chunks(1 + numbers.below(40));
        assert_eq!(read(BodyFraming::Chunked, 300, pieces), Ok((content, wire.len(), true)));
    }
}

#[test]
fn mutated_bodies_never_panic() {
    let mut numbers = Numbers(0xfade);
    let seed = b"3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n";
    for _ in 0..30_000 {
        let mut bytes = seed.to_vec();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(bytes.len());
            bytes[at] = numbers.next() as u8;
        }
        if let Ok((content, used, _)) =
            read(BodyFraming::Chunked, 1 << 20, bytes.chunks(1 + numbers.below(9)))
        {
            assert!(content.len() < used && used <= bytes.len());
        }
    }
}
