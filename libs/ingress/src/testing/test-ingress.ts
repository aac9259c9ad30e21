import http from 'node:http';
import http2 from 'node:http2';
import net, { type AddressInfo } from 'node:net';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import type { IngressBackends, IngressClient } from '../backend/backends.js';
import type { IngressCertificate, IngressRoute } from '../model.js';
import { createIngress, type Ingress, type IngressOptions } from '../server/ingress.js';
import type { AccessLine, EndpointResponse } from '../server/request-handler.js';

/** An answer as a client saw it. */
export interface TestAnswer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
  readonly trailers: NodeJS.Dict<string>;
}

/** An ingress with real listeners at free ports, and endpoints that are real servers. */
export class TestIngress {
  readonly clock = new ManualClock();
  readonly meter = new RecordingMeter();
  readonly lines: AccessLine[] = [];
  readonly responses: EndpointResponse[] = [];
  /** Ports of endpoints by service. A port 0 refuses connections. */
  readonly endpoints = new Map<string, number[]>();
  /** Certificates by secret. */
  readonly secrets = new Map<string, IngressCertificate>();
  /** Uses of endpoints that have not ended. */
  used = 0;
  /** Connections to endpoints that were opened. */
  connections = 0;
  readonly clients: IngressClient[] = [];
  /** Spans for which connections to endpoints were opened. */
  readonly traces: (string | undefined)[] = [];
  readonly ingress: Ingress;
  private readonly closers: (() => void)[] = [];
  httpPort = 0;
  httpsPort = 0;

  constructor(options: Pick<IngressOptions, 'headersTimeoutMs' | 'tracer'> = {}) {
    const backends: IngressBackends = {
      choose: ({ service, client, exclude }) => {
        this.clients.push(client);
        const all = this.endpoints.get(service.name) ?? [];
        const index = all.findIndex((_, i) => !exclude.has(`${service.name}-${i}`));
        if (index < 0) return { kind: 'refused', reason: 'has no ready endpoint' };
        this.used += 1;
        return {
          ...{ kind: 'chosen', endpoint: `${service.name}-${index}`, isShareable: true },
          connect: (trace) => {
            this.traces.push(trace);
            return this.connect(all[index] ?? 0);
          },
          release: () => void (this.used -= 1),
        };
      },
    };
    this.ingress = createIngress({
      ...options,
      ...{ backends, clock: this.clock, random: createSeededRandom(1), log: silentLog },
      ...{ meter: this.meter, accessSample: 1, onAccess: (line) => this.lines.push(line) },
      onResponse: (response) => this.responses.push(response),
      readSecret: (secret) => this.secrets.get(secret),
    });
  }

  /** Listens as the proxy process does: connections begin paused and may be half open. */
  async start(routes: readonly IngressRoute[]): Promise<this> {
    await this.ingress.setRoutes(routes);
    const listen = async (): Promise<net.Server> => {
      const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      return server;
    };
    const [plain, tls] = [await listen(), await listen()];
    this.httpPort = (plain.address() as AddressInfo).port;
    this.httpsPort = (tls.address() as AddressInfo).port;
    this.ingress.serveHttp(plain);
    this.ingress.serveHttps(tls);
    return this;
  }

  /** Adds an endpoint of HTTP/1.1 to a service. */
  async addHttp(service: string, listener: http.RequestListener): Promise<http.Server> {
    const server = http.createServer(listener);
    await this.add(service, server);
    this.closers.push(() => server.closeAllConnections());
    return server;
  }

  /**
   * Adds an endpoint that answers `late` once `finish` is called.
   * @returns `begun` resolves when the endpoint has received a request.
   */
  async addHeld(
    service: string,
  ): Promise<{ readonly begun: Promise<void>; readonly finish: () => void }> {
    let noteBegun: () => void = () => undefined;
    const begun = new Promise<void>((resolve) => (noteBegun = resolve));
    let held: http.ServerResponse | undefined;
    await this.addHttp(service, (_req, res) => {
      held = res;
      noteBegun();
    });
    return { begun, finish: () => void held?.end('late') };
  }

  /** Adds an endpoint of HTTP/2 without TLS to a service. */
  async addHttp2(
    service: string,
    onStream: (stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders) => void,
  ): Promise<void> {
    const server = http2.createServer();
    const sessions = new Set<http2.ServerHttp2Session>();
    server.on('session', (session) => sessions.add(session));
    server.on('stream', onStream);
    await this.add(service, server);
    this.closers.push(() => sessions.forEach((session) => session.destroy()));
  }

  /** Sends a request without TLS and reads the whole answer. */
  async get(
    host: string,
    path = '/',
    options: http.RequestOptions & { readonly body?: string } = {},
  ): Promise<TestAnswer> {
    const { body, ...rest } = options;
    const request = http.request({
      ...{ host: '127.0.0.1', port: this.httpPort, path, agent: false },
      ...rest,
      headers: { host, ...(rest.headers as http.OutgoingHttpHeaders) },
    });
    request.end(body);
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    return readAnswer(response);
  }

  /**
   * Sends bytes without TLS and returns all that comes back, until the ingress ends the connection.
   */
  async sendRaw(text: string): Promise<string> {
    const socket = net.connect(this.httpPort, '127.0.0.1');
    socket.write(text);
    return readText(socket);
  }

  close(): void {
    this.ingress.close();
    for (const close of this.closers) close();
  }

  private async add(service: string, server: net.Server): Promise<void> {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    this.endpoints.set(service, [...(this.endpoints.get(service) ?? []), port]);
    this.closers.push(() => server.close());
  }

  private async connect(port: number): Promise<Duplex> {
    if (port === 0) throw new Error('refused');
    const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    await once(socket, 'connect');
    this.connections += 1;
    socket.on('error', () => undefined);
    return socket;
  }
}

/** Reads a response to its end. */
export async function readAnswer(response: http.IncomingMessage): Promise<TestAnswer> {
  const body = await readText(response);
  const { statusCode: status = 0, headers, trailers } = response;
  return { status, headers, body, trailers };
}

/** Reads a stream to its end, also one that ends early. */
export async function readText(
  stream: (NodeJS.ReadableStream & Duplex) | http.IncomingMessage,
): Promise<string> {
  let text = '';
  stream.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  stream.on('error', () => undefined);
  await new Promise((resolve) => stream.once('close', resolve));
  return text;
}
