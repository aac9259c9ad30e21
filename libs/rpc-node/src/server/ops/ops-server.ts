import * as http from 'node:http';
import type { Socket } from 'node:net';
import { codeToHttpStatus } from '@connectrpc/connect/protocol-connect';
import {
  definedFields,
  errorFields,
  errorMessageOf,
  silentLog,
  type Clock,
  type Log,
} from '@cloudless/base';
import { toConnectError } from '@cloudless/api';
import { defaultRpcLimits } from '../options.js';
import { ConnectionAcceptor } from '../transport/connection-acceptor.js';
import type { ClientConnection, ServerConnection } from '../transport/connection.js';
import { toHeaders } from '../transport/http-types.js';
import { checkRequestOrigin } from '../transport/origin-check.js';
import type { ServerTls } from '../transport/tls-acceptor.js';

/**
 * Result of a check of health or readiness. `degraded` lists problems that need no restart of the
 * process.
 */
export type HealthReport = (
  | { readonly ok: true; readonly degraded?: readonly string[] }
  | { readonly ok: false; readonly reasons: readonly string[] }
) & {
  /** Further fields of the page, such as the role of the process in its cluster. */
  readonly facts?: Readonly<Record<string, string | number>>;
};

export interface OpsServerOptions {
  /** Address to listen on. Without `tls`: a loopback address or `localhost`. */
  readonly host: string;
  /** 0 to 65535; 0 lets the system choose. */
  readonly port: number;
  /** Default: plaintext. */
  readonly tls?: ServerTls;
  /**
   * Decides whether a client may read `/metrics`. `/health` and `/ready` are open to all. Default:
   * every client may.
   * @throws CloudlessError `unauthenticated` or `denied` to refuse the request.
   */
  readonly authorize?: (request: OpsRequest) => void | Promise<void>;
  /** Liveness: `ok: false` means that a restart may help. */
  readonly checkHealth: () => HealthReport | Promise<HealthReport>;
  /** Readiness: `ok: false` means that the process cannot serve calls now. */
  readonly checkReadiness: () => HealthReport | Promise<HealthReport>;
  /** Returns all metrics in the Prometheus text format, version 0.0.4. */
  readonly renderMetrics: () => string | Promise<string>;
  /** Clock of the timeout of checks. */
  readonly clock: Clock;
  /** Default: no log. */
  readonly log?: Log;
  /** Command-line option that error messages about the port name. Default `--ops-port`. */
  readonly portOption?: string;
}

/** A request of `/metrics`. */
export interface OpsRequest {
  /** Undefined when the connection closed while the request came in. */
  readonly connection: ClientConnection | undefined;
  readonly header: Headers;
}

/** A server for probes and metrics. */
export interface OpsServer {
  readonly address: { readonly host: string; readonly port: number };
  /** Base URL without a trailing slash. */
  readonly url: string;
  /** Stops at once. Resolves when the last socket is closed. */
  close(): Promise<void>;
}

/** Timeout of one check. Probes and scrapers give up after a similar time. */
const CHECK_TIMEOUT_MS = 5_000;
/** Far more connections than probes and scrapers need. */
const MAX_CONNECTIONS = 256;

/**
 * Starts the server for `/health`, `/ready` and `/metrics`. `/health` and `/ready` answer 200
 * `{"status":"ok"}`, 200 `{"status":"degraded","reasons":[…]}` or 503 with `reasons`, each with the
 * facts of the report.
 * @throws CloudlessError `precondition` when the host is not loopback and `tls` is absent; `invalid`
 *   when the port is out of range; `unavailable` when the port is in use; `denied` when the system
 *   refuses the port.
 */
export async function startOpsServer(options: OpsServerOptions): Promise<OpsServer> {
  const { clock, log = silentLog, tls, portOption = '--ops-port' } = options;
  const pages = createPages(options);
  const connections = new WeakMap<Socket, ServerConnection>();
  const server = http.createServer(
    { maxHeaderSize: defaultRpcLimits.maxHeaderBytes },
    (request, response) => {
      const connection = connections.get(request.socket);
      connection?.onCallStart();
      response.once('close', () => connection?.onCallEnd());
      response.on('error', () => undefined); // the client has gone
      void respond(options, pages, request, connection).then((page) => sendPage(response, page));
    },
  );
  const acceptor = new ConnectionAcceptor({
    ...defaultRpcLimits,
    maxConnections: MAX_CONNECTIONS,
    clock,
    log,
    tls,
    protocols: ['http/1.1'],
    serve: (connection, stream) => {
      connections.set(stream, connection);
      server.emit('connection', stream);
      process.nextTick(() => stream.resume());
    },
  });
  const { host, port, url } = await acceptor.listen(options.host, options.port, portOption);
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    if (closing === undefined) {
      acceptor.drain();
      acceptor.destroyAll();
      closing = acceptor.waitUntilClosed();
    }
    return closing;
  };
  return { address: { host, port }, url, close };
}

type Pages = Readonly<Record<string, () => Promise<Page>>>;

function createPages(options: OpsServerOptions): Pages {
  return {
    '/health': async () => toPage(await options.checkHealth()),
    '/ready': async () => toPage(await options.checkReadiness()),
    '/metrics': async () => ({
      status: 200,
      type: 'text/plain; version=0.0.4; charset=utf-8',
      body: await options.renderMetrics(),
    }),
  };
}

async function respond(
  { clock, log = silentLog, tls, authorize }: OpsServerOptions,
  pages: Pages,
  request: http.IncomingMessage,
  connection: ClientConnection | undefined,
): Promise<Page> {
  const decision = checkRequestOrigin(request, { allowedOrigins: [], tls: tls !== undefined });
  if (decision.kind === 'refuse') return createStatusPage(403, 'refused', [decision.reason]);
  const path = (request.url ?? '').split('?', 1)[0] ?? '';
  const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
  if (page === undefined) {
    const scheme = tls === undefined ? 'http' : 'https';
    return createHelpPage(path, `${scheme}://${request.headers.host ?? ''}`);
  }
  if (request.method !== 'GET' && request.method !== 'HEAD')
    return { ...createStatusPage(405, 'notAllowed', ['use GET']), allow: 'GET, HEAD' };
  try {
    if (path === '/metrics') await authorize?.({ connection, header: toHeaders(request) });
  } catch (reason) {
    const refusal = toConnectError(reason);
    return createStatusPage(codeToHttpStatus(refusal.code), 'refused', [refusal.rawMessage]);
  }
  try {
    return await withTimeout(clock, page());
  } catch (reason) {
    log.error('ops page failed', { path, ...errorFields(reason) });
    return createStatusPage(503, 'unavailable', [errorMessageOf(reason)]);
  }
}

interface Page {
  readonly status: number;
  readonly type: string;
  readonly body: string;
  readonly allow?: string;
}

function toPage(report: HealthReport): Page {
  const { facts = {} } = report;
  if (!report.ok)
    return createJsonPage(503, { status: 'unavailable', reasons: report.reasons, ...facts });
  const { degraded = [] } = report;
  return degraded.length === 0
    ? createJsonPage(200, { status: 'ok', ...facts })
    : createJsonPage(200, { status: 'degraded', reasons: degraded, ...facts });
}

/** The page at `/` and, with status 404, at every unknown path: what this server has. */
function createHelpPage(path: string, origin: string): Page {
  const curl = origin.startsWith('https:') ? 'curl --cacert ca.crt' : 'curl';
  const text = [
    ...(path === '/' ? [] : ['There is no page at this path.', '']),
    'This port serves health checks and metrics of a Cloudless process:',
    `  ${curl} ${origin}/health    200 while the process works; a restart may help otherwise`,
    `  ${curl} ${origin}/ready     200 while the process serves calls`,
    `  ${curl} ${origin}/metrics   all metrics, in the format of Prometheus`,
    '',
    'The API is on another port (default 8080 for a coordinator, 9092 for an agent).',
    'Documentation: docs/operating/monitoring.md in the source of Cloudless.',
    '',
  ].join('\n');
  return { status: path === '/' ? 200 : 404, type: 'text/plain; charset=utf-8', body: text };
}

function createStatusPage(status: number, name: string, reasons: readonly string[]): Page {
  return createJsonPage(status, { status: name, reasons });
}

function createJsonPage(status: number, content: object): Page {
  return { status, type: 'application/json', body: `${JSON.stringify(content)}\n` };
}

/** Node itself omits the body of a response to HEAD. */
function sendPage(response: http.ServerResponse, { status, type, body, allow }: Page): void {
  response.writeHead(status, {
    'Content-Type': type,
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
    ...definedFields({ Allow: allow }),
  });
  response.end(body);
}

function withTimeout<Result>(clock: Clock, work: Promise<Result>): Promise<Result> {
  return new Promise<Result>((resolve, reject) => {
    const timer = clock.setTimer(CHECK_TIMEOUT_MS, () =>
      reject(new Error(`no answer within ${CHECK_TIMEOUT_MS} ms`)),
    );
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}
