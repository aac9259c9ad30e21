import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import type { Clock, Timer } from '@cloudless/base';
import type { ChosenBackend, IngressBackends, IngressClient } from '../backend/backends.js';
import type { Http2Sessions } from '../backend/http2-sessions.js';
import type { KeptConnections } from '../backend/kept-connections.js';
import { toBackendHeaders, type HeaderMap } from '../http/headers.js';
import type { ParsedRequest } from '../http/parse-request.js';
import type { Refusal } from '../http/request-refusal.js';
import { toRouteKey } from '../model.js';
import type { RouteMatch } from '../routing/route-table.js';

/** A request of a client, over HTTP/1.1 or HTTP/2. */
export type ClientRequest = IncomingMessage | Http2ServerRequest;
/** The response to a client, over HTTP/1.1 or HTTP/2. */
export type ClientResponse = ServerResponse | Http2ServerResponse;

/** The parts of an ingress that all its exchanges share. */
export interface ExchangeContext {
  readonly clock: Clock;
  readonly backends: IngressBackends;
  readonly kept: KeptConnections;
  readonly sessions: Http2Sessions;
}

/** Longest pause of a client within the body of a request, milliseconds. */
const BODY_PAUSE_MS = 60_000;
/** Time for a client to read an early answer while the client still sends, milliseconds. */
const LINGER_MS = 1_000;

/** A request with its response and route. */
export interface ExchangeFacts {
  readonly req: ClientRequest;
  readonly res: ClientResponse;
  readonly match: RouteMatch;
  readonly parsed: ParsedRequest;
  readonly client: IngressClient;
  readonly protocol: 'http' | 'https';
  readonly requestId: string;
  /** Span of the request, in the format of the header `traceparent`. Undefined: not traced. */
  readonly trace: string | undefined;
}

/**
 * A request and its response: chooses an endpoint, tries again, and keeps the limits of the route.
 * A {@link Sender} sends the bytes to the endpoint in the protocol of the request.
 */
export class Exchange {
  readonly hasBody: boolean;
  /** Number of attempts so far, each with an endpoint. */
  attempts = 0;
  private readonly excluded = new Set<string>();
  private chosen: ChosenBackend | undefined;
  private lastEndpoint = '';
  /** Ends the time until the response must begin. */
  private responseTimer: Timer | undefined;
  private pauseTimer: Timer | undefined;
  private receivedBytes = 0;
  private isOver = false;
  /** Ends the attempt that runs. */
  private cancel: () => void = () => undefined;

  constructor(
    readonly context: ExchangeContext,
    readonly facts: ExchangeFacts,
    private readonly sender: Sender,
  ) {
    const { req, res, parsed } = facts;
    this.hasBody = 'stream' in req ? !req.stream.endAfterHeaders : parsed.hasBody;
    res.once('close', () => this.end());
    req.on('error', () => undefined);
    res.on('error', () => undefined);
  }

  /** Id of the endpoint that was tried last; empty: none. */
  get endpoint(): string {
    return this.lastEndpoint;
  }

  /** Headers for the endpoint. */
  backendHeaders(): HeaderMap {
    const { req, client, parsed, protocol, requestId, trace } = this.facts;
    const { authority } = parsed;
    const facts = { clientAddress: client.address, protocol, authority, requestId, trace };
    return toBackendHeaders(req.rawHeaders, facts);
  }

  /** Checks the limits of the route and forwards the request. */
  start(): void {
    const { match, parsed } = this.facts;
    const { maxHeaderBytes, maxBodyBytes } = match.route;
    if (parsed.headerBytes > maxHeaderBytes)
      return this.refuse({
        status: 431,
        reason: `headers are larger than ${maxHeaderBytes} bytes`,
      });
    if (maxBodyBytes > 0 && (parsed.contentLength ?? 0) > maxBodyBytes) return this.refuseBody();
    this.attempt();
  }

  /** Answers the client; when a response has begun already, ends the response as incomplete. */
  refuse({ status, reason }: Refusal): void {
    if (this.isOver) return;
    const { req, res, match, requestId } = this.facts;
    this.stopTimers();
    this.cancel();
    if (res.headersSent) return abort(res);
    const route = toRouteKey(match.route);
    answer(
      req,
      res,
      { status, reason: `route "${route}": ${reason}` },
      requestId,
      this.context.clock,
    );
  }

  /** Notes that an endpoint has begun to answer. */
  noteResponse(): void {
    this.responseTimer?.cancel();
    this.responseTimer = undefined;
  }

  /**
   * Notes that an attempt has failed. Makes another attempt if the request may be repeated and the
   * route has retries left; otherwise answers the client with 502.
   * @param mayRepeat - True when the endpoint has received nothing, or may receive the request
   *   twice.
   * @param excludes - True when a further attempt must choose another endpoint.
   */
  noteFailure(mayRepeat: boolean, excludes: boolean, reason: string): void {
    if (this.isOver || this.facts.res.headersSent) return this.refuse({ status: 502, reason });
    if (excludes && this.chosen !== undefined) this.excluded.add(this.chosen.endpoint);
    if (mayRepeat && this.attempts <= this.facts.match.rule.retries) return this.attempt();
    this.refuse({ status: 502, reason });
  }

  /**
   * Gives the body of the request to `write`, as fast as `write` returns true.
   * @returns A function that continues after `write` has returned false.
   */
  readBody(write: (chunk: Buffer) => boolean, onEnd: () => void): () => void {
    const { req, match } = this.facts;
    const { maxBodyBytes } = match.route;
    this.watchPause();
    const onData = (chunk: Buffer): void => {
      this.receivedBytes += chunk.length;
      this.watchPause();
      if (maxBodyBytes > 0 && this.receivedBytes > maxBodyBytes) return this.refuseBody();
      if (!write(chunk)) req.pause();
    };
    const onComplete = (): void => {
      this.pauseTimer?.cancel();
      this.expectResponse();
      onEnd();
    };
    req.on('data', onData).once('end', onComplete);
    const { cancel } = this;
    this.cancel = () => {
      req.off('data', onData).off('end', onComplete);
      cancel();
    };
    return () => void req.resume();
  }

  /** Starts the time limit of the route's rule until the response must begin. */
  expectResponse(): void {
    const { timeoutMs } = this.facts.match.rule;
    if (this.facts.res.headersSent || this.isOver) return;
    const reason = `no response within ${timeoutMs} ms`;
    this.responseTimer ??= this.context.clock.setTimer(timeoutMs, () =>
      this.refuse({ status: 504, reason }),
    );
  }

  /** Ends the running attempt and the timers, and releases the endpoint. */
  end(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.stopTimers();
    this.cancel();
    this.release();
  }

  private attempt(): void {
    const { match, client } = this.facts;
    const { service, port } = match.rule;
    this.release();
    const choice = this.context.backends.choose({
      ...{ service, port, client },
      exclude: this.excluded,
    });
    if (choice.kind === 'refused') {
      const name = `service "${service.name}"`;
      const status = this.attempts === 0 ? 503 : 502;
      return this.refuse({ status, reason: `${name} ${choice.reason}` });
    }
    this.attempts += 1;
    this.chosen = choice;
    this.lastEndpoint = choice.endpoint;
    this.cancel = () => undefined;
    this.cancel = this.sender(this, choice);
  }

  private refuseBody(): void {
    const { maxBodyBytes } = this.facts.match.route;
    this.refuse({ status: 413, reason: `the body is larger than ${maxBodyBytes} bytes` });
  }

  private watchPause(): void {
    if (this.sender.isStream === true) return;
    this.pauseTimer?.cancel();
    this.pauseTimer = this.context.clock.setTimer(BODY_PAUSE_MS, () =>
      // The endpoint may be what is slow.
      this.facts.req.isPaused()
        ? this.watchPause()
        : this.refuse({ status: 408, reason: `the body paused for ${BODY_PAUSE_MS} ms` }),
    );
  }

  private release(): void {
    this.chosen?.release();
    this.chosen = undefined;
  }

  private stopTimers(): void {
    this.responseTimer?.cancel();
    this.pauseTimer?.cancel();
  }
}

/** Sends a request to a chosen endpoint. */
export interface Sender {
  /** @returns A function that ends the attempt. */
  (exchange: Exchange, chosen: ChosenBackend): () => void;
  /** True when the bodies may pause for any time, as those of gRPC. */
  readonly isStream?: boolean;
}

/** Ends a response early, so that the client does not take the response for complete. */
export function abort(res: ClientResponse): void {
  if ('stream' in res && typeof res.stream?.close === 'function') res.stream.close(2);
  else (res as ServerResponse).destroy();
}

/** Answers a client in place of an endpoint. */
export function answer(
  req: ClientRequest,
  res: ClientResponse,
  { status, reason }: Refusal,
  requestId: string,
  clock: Clock,
): void {
  const text = `${status} ${STATUS_CODES[status] ?? ''}: ${reason} (request ${requestId})\n`;
  const isUnread = req.httpVersionMajor < 2 && !(req as IncomingMessage).complete;
  sendHead(res, status, {
    'content-type': 'text/plain; charset=utf-8',
    'content-length': String(Buffer.byteLength(text)),
    'x-request-id': requestId,
    ...(isUnread ? { connection: 'close' } : {}),
  });
  const body = req.method === 'HEAD' ? '' : text;
  if (!isUnread) return void res.end(body);
  // A connection that closes while the client sends is reset, and the answer is lost with it.
  (res as ServerResponse).write(body);
  const finish = (): void => {
    timer.cancel();
    res.end();
  };
  const timer = clock.setTimer(LINGER_MS, finish);
  req.once('end', finish).once('close', finish);
  req.resume();
}

/** Begins a response in either protocol. */
export function sendHead(
  res: ClientResponse,
  status: number,
  headers: Readonly<Record<string, string | string[]>>,
): void {
  (res as ServerResponse).writeHead(status, headers);
}
