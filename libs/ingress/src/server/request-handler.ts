import { METHODS, type ServerResponse } from 'node:http';
import type { TLSSocket } from 'node:tls';
import {
  noSampledTracer,
  SecondLimit,
  unmapIpv4,
  type Clock,
  type Log,
  type Random,
  type SampledSpan,
  type SampledTracer,
} from '@cloudless/base';
import type { IngressClient } from '../backend/backends.js';
import { isGrpc } from '../http/headers.js';
import { parseRequest, type ParsedRequest } from '../http/parse-request.js';
import type { Refusal } from '../http/request-refusal.js';
import { toRouteKey, type IngressRoute } from '../model.js';
import type { RouteMatch, RouteTable } from '../routing/route-table.js';
import {
  answer,
  Exchange,
  sendHead,
  type ClientRequest,
  type ClientResponse,
  type ExchangeContext,
  type Sender,
} from './exchange.js';
import type { IngressMetrics } from './ingress-metrics.js';
import { createHttp1Sender, type UpgradeRequest } from './send-http1.js';
import { sendHttp2 } from './send-http2.js';

/** A finished request, as a line of the access log. */
export interface AccessLine {
  readonly requestId: string;
  /** Key of the route; empty: none was found. */
  readonly route: string;
  readonly host: string;
  readonly method: string;
  /** Without the query, which may have secrets. */
  readonly path: string;
  readonly protocol: 'http' | 'https';
  readonly httpVersion: string;
  /** Address without port. */
  readonly client: string;
  /** Id of the endpoint that was tried last; empty: none. */
  readonly endpoint: string;
  readonly attempts: number;
  /** 499: the client ended the request. */
  readonly status: number;
  readonly durationMs: number;
}

/** Arguments of {@link RequestHandler}. */
export interface RequestHandlerOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly metrics: IngressMetrics;
  readonly context: ExchangeContext;
  readonly table: () => RouteTable;
  /** Port of the listener with TLS; undefined: none. */
  readonly httpsPort: () => number | undefined;
  /**
   * Returns true when requests for a host may use a connection that was opened for a name.
   * @param name - Server name of the TLS handshake; undefined: the client named none.
   */
  readonly covers: (name: string | undefined, host: string) => boolean;
  readonly accessSample?: number;
  readonly onAccess?: (line: AccessLine) => void;
  readonly onResponse?: (response: EndpointResponse) => void;
  readonly tracer?: SampledTracer;
}

/** A finished request to an endpoint. */
export interface EndpointResponse {
  /** Id of the endpoint that was tried last. */
  readonly endpoint: string;
  /** Status that the client received. */
  readonly status: number;
  /** From the headers of the request to the end of the response. */
  readonly durationMs: number;
}

/** Share of the successful requests in the access log. */
const DEFAULT_SAMPLE = 0.01;
/** Failed requests in the access log in each second. */
const FAILURES_PER_SECOND = 20;
/** Status of a request that the client has ended. */
const CLIENT_GONE = 499;

const http1Sender = createHttp1Sender();

const KNOWN_METHODS: ReadonlySet<string> = new Set(METHODS);

/** A request whose response has ended. */
interface FinishedRequest {
  readonly requestId: string;
  readonly protocol: 'http' | 'https';
  readonly startMs: number;
  readonly req: ClientRequest;
  readonly client: IngressClient;
  readonly parsed: ParsedRequest | undefined;
  readonly match: RouteMatch | undefined;
  readonly attempts: number;
  readonly endpoint: string;
  readonly status: number;
}

/** Finds the route of each request, and answers or forwards the request. */
export class RequestHandler {
  private isDraining = false;
  private onFinished: () => void = () => undefined;
  private readonly failures = new SecondLimit(FAILURES_PER_SECOND);
  /** Routes with a series of their own, with the classes of status that were counted. */
  private readonly counted = new Map<string, Set<string>>();

  constructor(private readonly options: RequestHandlerOptions) {}

  /**
   * Asks clients from now on to open another connection for their next request.
   * @param onFinished - Called after each request that still ends.
   */
  drain(onFinished: () => void): void {
    this.isDraining = true;
    this.onFinished = onFinished;
  }

  /** Removes the metrics of routes that are gone. */
  forgetRoutes(remaining: readonly IngressRoute[]): void {
    const keys = new Set(remaining.map(toRouteKey));
    for (const [route, classes] of this.counted) {
      if (route === '' || keys.has(route)) continue;
      for (const status of classes) this.options.metrics.requests.remove({ route, status });
      this.counted.delete(route);
    }
  }

  /**
   * Answers a request.
   * @param upgrade - Set when the client asks to switch the protocol of an HTTP/1.1 connection.
   */
  handle(req: ClientRequest, res: ClientResponse, upgrade?: UpgradeRequest): void {
    const { clock, random, context } = this.options;
    const startMs = clock.now();
    const requestId = Buffer.from(random.bytes(16)).toString('hex');
    const socket = (upgrade?.socket ?? req.socket) as TLSSocket;
    const protocol = socket.encrypted === true ? 'https' : 'http';
    const client = describeClient(socket);
    const parsed = parseRequest(req);
    let match: RouteMatch | undefined;
    let exchange: Exchange | undefined;
    let span: SampledSpan | undefined;
    let isWritten = false;
    res.once('close', () => {
      if (isWritten) return;
      isWritten = true;
      this.onFinished();
      const finished: FinishedRequest = {
        ...{ requestId, protocol, startMs, req, client },
        ...{ parsed: 'status' in parsed ? undefined : parsed, match },
        attempts: exchange?.attempts ?? 0,
        endpoint: exchange?.endpoint ?? '',
        status: res.writableFinished || upgrade !== undefined ? res.statusCode : CLIENT_GONE,
      };
      if (span !== undefined) endSpan(span, finished);
      this.record(finished);
    });
    if (this.isDraining && req.httpVersionMajor < 2 && upgrade === undefined)
      (res as ServerResponse).shouldKeepAlive = false;
    const refuse = (refusal: Refusal): void => answer(req, res, refusal, requestId, clock);
    if ('status' in parsed) return refuse(parsed);
    match = this.options.table().choose(parsed.host, parsed.path);
    if (protocol === 'https' && !this.options.covers(socket.servername || undefined, parsed.host))
      return refuse({ status: 421, reason: 'the connection was opened for another host' });
    if (match === undefined)
      return refuse({ status: 404, reason: `no route for ${parsed.host}${parsed.path}` });
    if (protocol === 'http' && match.route.redirectToHttps)
      return this.redirect(req, res, parsed, requestId);
    span = this.beginSpan(req, match);
    const trace = span?.traceparent;
    const facts = { req, res, match, parsed, client, protocol, requestId, trace } as const;
    const sender = chooseSender(req, upgrade);
    exchange = new Exchange(context, facts, 'status' in sender ? http1Sender : sender);
    if ('status' in sender) return exchange.refuse(sender);
    exchange.start();
  }

  private redirect(
    req: ClientRequest,
    res: ClientResponse,
    { host, target }: ParsedRequest,
    requestId: string,
  ): void {
    const port = this.options.httpsPort();
    if (port === undefined) {
      const reason = 'the route needs https, and this node has no listener with TLS';
      return answer(req, res, { status: 503, reason }, requestId, this.options.clock);
    }
    const location = `https://${host}${port === 443 ? '' : `:${port}`}${target}`;
    sendHead(res, 308, { location, 'content-length': '0', 'x-request-id': requestId });
    res.end();
  }

  private beginSpan(req: ClientRequest, { rule }: RouteMatch): SampledSpan | undefined {
    const { tracer = noSampledTracer } = this.options;
    const parent = req.headers.traceparent;
    const name = `${toKnownMethod(req)} ${rule.pathPrefix}`;
    return tracer.begin(name, 'server', typeof parent === 'string' ? parent : undefined);
  }

  /** Counts a request, and writes the access log. */
  private record(finished: FinishedRequest): void {
    const { requestId, protocol, req, client, parsed, match, attempts, endpoint } = finished;
    const { metrics, clock, log, onAccess, onResponse } = this.options;
    const nowMs = clock.now();
    const durationMs = nowMs - finished.startMs;
    const route = match === undefined ? '' : toRouteKey(match.route);
    const status = `${Math.floor(finished.status / 100)}xx`;
    this.counted.set(route, (this.counted.get(route) ?? new Set()).add(status));
    metrics.requests.add(1, { route, status });
    metrics.duration.observe(durationMs / 1_000);
    // An upgraded connection says nothing about the duration of requests.
    if (endpoint !== '' && finished.status !== CLIENT_GONE && finished.status >= 200)
      onResponse?.({ endpoint, status: finished.status, durationMs });
    if (!this.isSampled(finished.status, nowMs)) return;
    const line: AccessLine = {
      requestId,
      route,
      host: parsed?.host ?? '',
      method: req.method ?? '',
      path: parsed?.path ?? '',
      protocol,
      httpVersion: req.httpVersion,
      client: client.address,
      endpoint,
      attempts,
      status: finished.status,
      durationMs,
    };
    if (onAccess !== undefined) onAccess(line);
    else log.info('http request', { ...line });
  }

  private isSampled(status: number, nowMs: number): boolean {
    const { random, accessSample = DEFAULT_SAMPLE } = this.options;
    if (status < 500) return accessSample > 0 && random.next() < accessSample;
    return this.failures.take(nowMs);
  }
}

/** Ends a span with attributes of the OpenTelemetry semantic conventions for HTTP servers. */
function endSpan(span: SampledSpan, finished: FinishedRequest): void {
  const { requestId, protocol, req, client, parsed, match, attempts, endpoint, status } = finished;
  span.end(
    {
      'http.request.method': toKnownMethod(req),
      'http.response.status_code': status,
      'http.route': match?.rule.pathPrefix ?? '',
      'url.scheme': protocol,
      // Without the query, which may have secrets.
      'url.path': parsed?.path ?? '',
      'server.address': parsed?.host ?? '',
      'client.address': client.address,
      'network.protocol.version': req.httpVersion,
      'cloudless.request_id': requestId,
      'cloudless.route': match === undefined ? '' : toRouteKey(match.route),
      'cloudless.endpoint': endpoint,
      'cloudless.attempts': attempts,
    },
    status >= 500 ? `status ${status}` : undefined,
  );
}

/** Clients of HTTP/2 may send any text as the method. */
function toKnownMethod({ method = '' }: ClientRequest): string {
  return KNOWN_METHODS.has(method) ? method : '_OTHER';
}

function chooseSender(req: ClientRequest, upgrade: UpgradeRequest | undefined): Sender | Refusal {
  if (upgrade !== undefined) return createHttp1Sender(upgrade);
  if (!isGrpc(req.headers['content-type'])) return http1Sender;
  if (req.httpVersionMajor >= 2) return sendHttp2;
  return { status: 400, reason: 'gRPC needs HTTP/2: connect with TLS' };
}

function describeClient(socket: TLSSocket): IngressClient {
  const { remoteAddress = '', remotePort = 0, localAddress = '', localPort = 0 } = socket;
  const local = localAddress.includes(':') ? `[${localAddress}]` : localAddress;
  return { address: unmapIpv4(remoteAddress), port: remotePort, local: `${local}:${localPort}` };
}
