import { hostname } from 'node:os';
import type { Log } from '@cloudless/base';
import type { Agent } from '@cloudless/agent-core';
import { systemClock } from '@cloudless/app-kit';
import { isLoopbackHost } from '@cloudless/identity';
import type { Metrics, Tracing } from '@cloudless/observability';
import { startOpsServer, type OpsServer, type RpcServer } from '@cloudless/rpc-node/server';
import { serveAgentService, type AgentServiceSecurity } from './agent-service.js';
import type { AgentConfig } from './agent-config.js';

export interface AgentServersOptions {
  readonly config: Pick<AgentConfig, 'listen' | 'opsListen'>;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly tracing: Tracing;
  /** Metrics of the network proxy in the text format of Prometheus. */
  readonly renderProxyMetrics: () => Promise<string>;
  /** Returns undefined while the agent is starting. */
  readonly agent: () => Agent | undefined;
}

/** Hosts that stand for all addresses of the machine. */
const EVERY_ADDRESS: readonly string[] = ['0.0.0.0', '::', '[::]'];

/** The listening servers of an agent: AgentService, and the pages for probes and metrics. */
export class AgentServers {
  private server: RpcServer | undefined;
  private ops: OpsServer | undefined;

  constructor(private readonly options: AgentServersOptions) {}

  /** Base address of AgentService; undefined: not served. */
  get url(): string | undefined {
    return this.server?.url;
  }

  /** Base address of the pages for probes and metrics; undefined: not served. */
  get opsUrl(): string | undefined {
    return this.ops?.url;
  }

  /** Address of AgentService for the Hello of a session; empty: not served. */
  get agentAddress(): string {
    const { host, port } = this.server?.address ?? {};
    if (host === undefined) return '';
    return `${EVERY_ADDRESS.includes(host) ? hostname() : host}:${port}`;
  }

  /**
   * Starts the servers that the settings ask for and that can start: without an identity only the
   * pages on loopback. Call this method again once the machine has joined.
   * @param security - Undefined: plaintext on loopback.
   * @throws as `startRpcServer` when an address cannot be used.
   */
  async start(security: AgentServiceSecurity | undefined, hasIdentity: boolean): Promise<void> {
    const { config, log, metrics, tracing, agent } = this.options;
    const { listen, opsListen } = config;
    const canServe = security === undefined || hasIdentity;
    if (opsListen !== undefined && (canServe || isLoopbackHost(opsListen.host)))
      this.ops ??= await this.serveOps(opsListen, security);
    if (listen === undefined || !canServe || this.server !== undefined) return;
    this.server = await serveAgentService(listen, () => agent()?.containers, {
      clock: systemClock,
      log: log.child({ component: 'server' }),
      meter: metrics,
      tracing,
      security,
    });
    if (security !== undefined) log.info('AgentService listening', { url: this.url });
  }

  async close(): Promise<void> {
    await Promise.all([this.server?.close(0), this.ops?.close()]);
  }

  /**
   * Serves health and readiness. An agent without a session is healthy but not ready. On loopback
   * the pages are plaintext, as probes and scrapers on the machine expect.
   */
  private serveOps(
    listen: NonNullable<AgentConfig['opsListen']>,
    security: AgentServiceSecurity | undefined,
  ): Promise<OpsServer> {
    const { log, metrics, agent, renderProxyMetrics } = this.options;
    const isConnected = (): boolean => agent()?.connected === true;
    const guard =
      security === undefined || isLoopbackHost(listen.host)
        ? {}
        : {
            tls: security.tls,
            authorize: ({ connection, header }: PageRequest) =>
              security.authorizer.authorizePage(connection, header),
          };
    return startOpsServer({
      ...listen,
      ...guard,
      portOption: '--ops-listen',
      clock: systemClock,
      log: log.child({ component: 'ops' }),
      checkHealth: () =>
        isConnected()
          ? { ok: true }
          : { ok: true, degraded: ['no session with a coordinator; replicas keep running'] },
      checkReadiness: () =>
        isConnected() ? { ok: true } : { ok: false, reasons: ['no session with a coordinator'] },
      renderMetrics: async () => `${await metrics.expose()}${await renderProxyMetrics()}`,
    });
  }
}

type PageRequest = Parameters<NonNullable<Parameters<typeof startOpsServer>[0]['authorize']>>[0];
