import {
  constants,
  type ClientHttp2Stream,
  type Http2ServerResponse,
  type IncomingHttpHeaders,
} from 'node:http2';
import type { ChosenBackend } from '../backend/backends.js';
import { ConnectFailure, toPoolKey } from '../backend/kept-connections.js';
import { toClientHeaders, toRawHeaders, toTrailers, type HeaderMap } from '../http/headers.js';
import { abort, sendHead, type Exchange, type Sender } from './exchange.js';

/**
 * Sends requests over HTTP/2 without TLS and without a negotiation ("prior knowledge"), with trailers
 * in both directions, as gRPC needs them. Only for requests that came over HTTP/2.
 */
export const sendHttp2: Sender = Object.assign(send, { isStream: true });

function send(exchange: Exchange, chosen: ChosenBackend): () => void {
  let stream: ClientHttp2Stream | undefined;
  let isEnded = false;
  const { facts, hasBody, context } = exchange;
  const { req, parsed, match, client } = facts;
  const { host, ...headers } = exchange.backendHeaders();
  const poolKey = toPoolKey(chosen, match.rule.port, client);
  const pseudo = {
    ':method': req.method ?? 'POST',
    ':path': parsed.target,
    ':scheme': 'http',
    ':authority': host ?? parsed.authority,
  };
  void context.sessions
    .request(poolKey, () => chosen.connect(facts.trace), { ...pseudo, ...headers }, !hasBody)
    .then(
      (opened) => {
        stream = opened;
        opened.on('error', () => undefined);
        if (isEnded) return opened.close(constants.NGHTTP2_CANCEL);
        forward(exchange, opened, () => isEnded);
      },
      (reason: unknown) => {
        if (isEnded) return;
        const isUnsent = reason instanceof ConnectFailure;
        exchange.noteFailure(isUnsent, isUnsent, 'no endpoint accepted the connection');
      },
    );
  return () => {
    isEnded = true;
    if (stream?.closed === false) stream.close(constants.NGHTTP2_CANCEL);
  };
}

/**
 * Sends the body of the request to a stream, and the response of the stream to the client.
 * @param isEnded - Returns true when the exchange no longer wants the result of the stream.
 */
function forward(exchange: Exchange, stream: ClientHttp2Stream, isEnded: () => boolean): void {
  const { requestId } = exchange.facts;
  const res = exchange.facts.res as Http2ServerResponse;
  let trailers: HeaderMap = {};
  let hasResponse = false;
  let isHeaderOnly = false;
  stream.once('response', (headers, flags) => {
    hasResponse = true;
    exchange.noteResponse();
    const status = headers[':status'] ?? 502;
    const own = toClientHeaders(toRawHeaders(headers), requestId);
    // Headers that are the whole response must stay one frame, or gRPC misses their status.
    isHeaderOnly = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    if (isHeaderOnly) return res.stream.respond({ ':status': status, ...own }, { endStream: true });
    sendHead(res, status, own);
    stream.on('data', (chunk: Buffer) => {
      if (!res.write(chunk)) stream.pause();
    });
    res.on('drain', () => stream.resume());
  });
  stream.once('trailers', (received: IncomingHttpHeaders) => {
    trailers = toTrailers(toRawHeaders(received));
  });
  stream.once('close', () => {
    if (isEnded()) return;
    if (!hasResponse)
      return exchange.noteFailure(
        stream.rstCode === constants.NGHTTP2_REFUSED_STREAM && !exchange.hasBody,
        false,
        'the endpoint ended the call before the response, or does not speak HTTP/2',
      );
    if (stream.rstCode !== constants.NGHTTP2_NO_ERROR) return abort(res);
    if (isHeaderOnly) return;
    res.addTrailers(trailers);
    res.end();
  });
  if (!exchange.hasBody) return exchange.expectResponse();
  const resume = exchange.readBody(
    (chunk) => stream.write(chunk),
    () => stream.end(),
  );
  stream.on('drain', resume);
}
