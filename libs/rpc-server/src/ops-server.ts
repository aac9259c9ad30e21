import * as http from 'node:http';
import { errorFields, errorMessageOf, silentLog, type Clock, type Log } from '@cloudless/base';
import { guardRequest } from './guard.js';
import { listenOnLoopback } from './listen.js';

/**
 * What a probe finds. `degraded` says what does not work although the process is to be left
 * running.
 */
export type HealthReport =
  | { readonly ok: true; readonly degraded?: readonly string[] }
  | { readonly ok: false; readonly reasons: readonly string[] };

/** What {@link startOpsServer} needs. */
export interface OpsServerOptions {
  /** A loopback address or `localhost`; anything else is refused. */
  readonly host: string;
  /** 0 to 65535; 0 lets the system choose. */
  readonly port: number;
  /** Whether the process works; if not, restarting it may help. */
  readonly health: () => HealthReport | Promise<HealthReport>;
  /** Whether it can serve calls now. */
  readonly ready: () => HealthReport | Promise<HealthReport>;
  /** All metrics in the Prometheus text format, version 0.0.4. */
  readonly metrics: () => string | Promise<string>;
  readonly clock: Clock;
  /** Default: silent. */
  readonly log?: Log;
  /** The option that a message about a taken port names; default `--ops-port`. */
  readonly portOption?: string;
}

/** A server for probes and metrics. */
export interface OpsServer {
  readonly address: { readonly host: string; readonly port: number };
  /** Base address, without a slash at the end. */
  readonly url: string;
  /** Stops at once; resolves when the last socket is closed. */
  close(): Promise<void>;
}

/** A probe that takes longer has failed: who asks would give up. */
const ANSWER_WITHIN_MS = 5_000;
/** Probes and one or two scrapers; more are a mistake. */
const MAX_CONNECTIONS = 256;

/**
 * Starts the server for `/health`, `/ready` and `/metrics`. The first two answer 200
 * `{"status":"ok"}`, or `degraded` with `reasons`, or 503 with `reasons`.
 * @throws CloudlessError `precondition` when the host is not loopback, `invalid`, `unavailable` or
 *   `denied` about the port.
 */
export async function startOpsServer(options: OpsServerOptions): Promise<OpsServer> {
  const { clock, log = silentLog, portOption = '--ops-port' } = options;
  const pages: Readonly<Record<string, () => Promise<Page>>> = {
    '/health': async () => toPage(await options.health()),
    '/ready': async () => toPage(await options.ready()),
    '/metrics': async () => ({
      status: 200,
      type: 'text/plain; version=0.0.4; charset=utf-8',
      body: await options.metrics(),
    }),
  };
  const answer = async (request: http.IncomingMessage): Promise<Page> => {
    const guard = guardRequest(request, []);
    if (guard.kind === 'refuse') return refusal(403, 'refused', [guard.reason]);
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
    if (page === undefined)
      return refusal(404, 'notFound', [`nothing here; try ${Object.keys(pages).join(', ')}`]);
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return { ...refusal(405, 'notAllowed', ['use GET']), allow: 'GET, HEAD' };
    try {
      return await within(clock, page());
    } catch (reason) {
      log.error('ops page failed', { path, ...errorFields(reason) });
      return refusal(503, 'unavailable', [errorMessageOf(reason)]);
    }
  };
  const server = http.createServer(
    { headersTimeout: 10_000, requestTimeout: 30_000, maxHeaderSize: 16 * 1024 },
    (request, response) => {
      response.on('error', () => undefined); // its reader has gone
      void answer(request).then((page) => send(response, page));
    },
  );
  server.maxConnections = MAX_CONNECTIONS;
  const { host, port, url } = await listenOnLoopback(
    server,
    options.host,
    options.port,
    portOption,
  );
  server.on('error', (reason) => log.error('listener failed', errorFields(reason)));
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> =>
    (closing ??= new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    }));
  return { address: { host, port }, url, close };
}

interface Page {
  readonly status: number;
  readonly type: string;
  readonly body: string;
  readonly allow?: string;
}

function toPage(report: HealthReport): Page {
  if (!report.ok) return refusal(503, 'unavailable', report.reasons);
  const { degraded = [] } = report;
  return degraded.length === 0
    ? jsonPage(200, { status: 'ok' })
    : refusal(200, 'degraded', degraded);
}

function refusal(status: number, name: string, reasons: readonly string[]): Page {
  return jsonPage(status, { status: name, reasons });
}

function jsonPage(status: number, content: object): Page {
  return { status, type: 'application/json', body: `${JSON.stringify(content)}\n` };
}

/** Node leaves out the body of a response to HEAD by itself. */
function send(response: http.ServerResponse, { status, type, body, allow }: Page): void {
  response.writeHead(status, {
    'Content-Type': type,
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
    ...(allow === undefined ? {} : { Allow: allow }),
  });
  response.end(body);
}

function within<Result>(clock: Clock, work: Promise<Result>): Promise<Result> {
  return new Promise<Result>((resolve, reject) => {
    const timer = clock.setTimer(ANSWER_WITHIN_MS, () =>
      reject(new Error(`no answer within ${ANSWER_WITHIN_MS} ms`)),
    );
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}
