import { request, type IncomingMessage, type RequestOptions, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { errorCodeOf } from '@cloudless/base';
import { ConnectFailure, toPoolKey, type PooledRequest } from '../backend/kept-connections.js';
import { toClientHeaders, toTrailers } from '../http/headers.js';
import { abort, sendHead, type ClientResponse, type Exchange, type Sender } from './exchange.js';

/**
 * Methods of requests that may be repeated although the endpoint may have received them.
 * @see RFC 9110, section 9.2.1
 */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

/** A protocol to which a client asks to switch, such as websocket. */
export interface UpgradeRequest {
  readonly protocol: string;
  readonly socket: Duplex;
  /** Bytes of the client after the request. */
  readonly head: Buffer;
}

/** Returns a sender of requests over HTTP/1.1. */
export function createHttp1Sender(upgrade?: UpgradeRequest): Sender {
  return (exchange, chosen) => {
    const { facts, hasBody, context } = exchange;
    const { req, parsed, match, client, requestId } = facts;
    const poolKey = toPoolKey(chosen, match.rule.port, client);
    const method = req.method ?? 'GET';
    const isRepeatable = !hasBody && upgrade === undefined && SAFE_METHODS.has(method);
    context.kept.prepare(poolKey, isRepeatable);
    const headers = exchange.backendHeaders();
    // Without this header, Node would send the body of a GET without its size.
    if (hasBody && parsed.contentLength === undefined) headers['transfer-encoding'] = 'chunked';
    if (upgrade !== undefined)
      Object.assign(headers, { connection: 'Upgrade', upgrade: upgrade.protocol });
    const options: RequestOptions & PooledRequest = {
      ...{ agent: context.kept, method, path: parsed.target, headers, setHost: false },
      ...{ poolKey, dial: () => chosen.connect(facts.trace) },
    };
    const upstream = request(options);
    let isEnded = false;
    upstream.on('error', (reason) => {
      if (isEnded) return;
      isEnded = true;
      const isUnsent = reason instanceof ConnectFailure;
      const isStale = upstream.reusedSocket && isRepeatable;
      if (isStale) context.kept.closeUnused(poolKey);
      exchange.noteFailure(isUnsent || isStale, isUnsent, describeFailure(reason));
    });
    upstream.once('response', (response) => {
      exchange.noteResponse();
      context.kept.noteResponse(response);
      forwardResponse(response, facts.res, requestId);
    });
    if (upgrade !== undefined)
      upstream.once('upgrade', (response, socket, head) => {
        exchange.noteResponse();
        switchProtocol(exchange, upgrade, response, socket, head);
      });
    // No byte of the body is taken from the client before the endpoint is connected.
    if (hasBody) upstream.once('socket', () => sendBody(exchange, upstream));
    else {
      upstream.end();
      exchange.expectResponse();
    }
    return () => {
      isEnded = true;
      upstream.destroy();
    };
  };
}

function sendBody(exchange: Exchange, upstream: ReturnType<typeof request>): void {
  const { req } = exchange.facts;
  const resume = exchange.readBody(
    (chunk) => upstream.write(chunk),
    () => {
      const trailers = toTrailers(req.rawTrailers);
      if (upstream.hasHeader('transfer-encoding') && Object.keys(trailers).length > 0)
        upstream.addTrailers(trailers as Record<string, string>);
      upstream.end();
    },
  );
  upstream.on('drain', resume);
}

function forwardResponse(response: IncomingMessage, res: ClientResponse, requestId: string): void {
  sendHead(res, response.statusCode ?? 502, toClientHeaders(response.rawHeaders, requestId));
  response.on('data', (chunk: Buffer) => {
    if (!(res as ServerResponse).write(chunk)) response.pause();
  });
  res.on('drain', () => response.resume());
  response.once('end', () => {
    if (!response.complete) return abort(res);
    const trailers = toTrailers(response.rawTrailers);
    if (Object.keys(trailers).length > 0) (res as ServerResponse).addTrailers(trailers as never);
    res.end();
  });
  response.once('error', () => abort(res));
  response.once('close', () => {
    if (!response.complete) abort(res);
  });
}

function switchProtocol(
  exchange: Exchange,
  { protocol, socket: client, head: clientHead }: UpgradeRequest,
  response: IncomingMessage,
  endpoint: Duplex,
  endpointHead: Buffer,
): void {
  const { res, requestId } = exchange.facts;
  const headers = toClientHeaders(response.rawHeaders, requestId);
  const lines = Object.entries({ ...headers, connection: 'Upgrade', upgrade: protocol }).flatMap(
    ([name, value]) => [value].flat().map((each) => `${name}: ${each}\r\n`),
  );
  (res as ServerResponse).detachSocket(client as Socket);
  client.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('')}\r\n`, 'latin1');
  if (endpointHead.length > 0) endpoint.unshift(endpointHead);
  if (clientHead.length > 0) client.unshift(clientHead);
  const end = (): void => {
    client.destroy();
    endpoint.destroy();
    exchange.end();
  };
  for (const stream of [client, endpoint]) stream.once('close', end).on('error', end);
  client.pipe(endpoint);
  endpoint.pipe(client);
}

function describeFailure(reason: Error): string {
  if (reason instanceof ConnectFailure) return 'no endpoint accepted the connection';
  return errorCodeOf(reason)?.startsWith('HPE_') === true
    ? 'the endpoint sent a malformed response'
    : 'the endpoint closed the connection before the response';
}
