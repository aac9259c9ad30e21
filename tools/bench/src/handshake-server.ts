// A server with TLS and a server in plaintext in one process. The benchmark starts the process, and
// asks for its figures by messages.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { ConnectRouter } from '@connectrpc/connect';
import { CoordinatorService } from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';
import { CertificateAuthority, createServerCertificate } from '@cloudless/identity/x509';
import { startRpcServer, type RpcServer } from '@cloudless/rpc-node/server';

/** First message to the benchmark. */
export interface HandshakeServerStart {
  readonly secureUrl: string;
  readonly plaintextUrl: string;
  readonly authorityPems: {
    readonly rootPem: string;
    readonly rootKeyPem: string;
    readonly issuingPem: string;
    readonly issuingKeyPem: string;
  };
}

/** Figures since the previous message. */
export interface HandshakeServerFigures {
  readonly connections: number;
  readonly connectionsDropped: number;
  readonly cpuSeconds: number;
  readonly memoryMb: number;
  readonly maxLoopDelayMs: number;
}

const nowMs = Date.now();
const { authority, ...authorityPems } = await CertificateAuthority.create({
  trustDomain: 'cloudless',
  generation: 1,
  nowMs,
});
const { keyPem, chain } = await createServerCertificate(authority, {
  id: { trustDomain: 'cloudless', kind: 'controller', id: 'coordinator' },
  hosts: ['127.0.0.1'],
  lifetimeMs: 3_600_000,
  nowMs,
});
const options = {
  host: '127.0.0.1',
  port: 0,
  clock: systemClock,
  registerRoutes: (router: ConnectRouter) =>
    void router.service(CoordinatorService, { getWorkload: () => ({}) }),
};
const secure: RpcServer = await startRpcServer({
  ...options,
  tls: {
    getContext: () => ({ keyPem, chainPem: chain.pem }),
    onContextChange: () => () => undefined,
  },
});
const plaintext = await startRpcServer(options);
const loopDelay = monitorEventLoopDelay({ resolution: 5 });
loopDelay.enable();

process.on('message', () => {
  const { user, system } = process.cpuUsage();
  const { connections, connectionsDropped } = secure.getLoad();
  const figures: HandshakeServerFigures = {
    connections,
    connectionsDropped,
    cpuSeconds: (user + system) / 1e6,
    memoryMb: Math.round(process.memoryUsage().rss / 1e6),
    maxLoopDelayMs: Math.round(loopDelay.max / 1e6),
  };
  loopDelay.reset();
  process.send?.(figures);
});
const start: HandshakeServerStart = {
  secureUrl: secure.url,
  plaintextUrl: plaintext.url,
  authorityPems,
};
process.send?.(start);
