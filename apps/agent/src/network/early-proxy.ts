import {
  startBackgroundProgram,
  type BackgroundProgram,
  type StartedProgram,
} from '@cloudless/app-kit/background';
import type { AgentConfig } from '../agent-config.js';
import { FileAgentStore } from '../data/file-agent-store.js';
import { acceptsControl } from './control-client.js';
import type { ProxySettings } from './control-messages.js';
import { toProxyProgram } from './proxy-program.js';
import { createProxySettings, writeProxySettings } from './proxy-settings.js';

/** The network proxy of a node whose agent has not loaded all of its code yet. */
export interface EarlyProxy {
  readonly settings: ProxySettings;
  /** The proxy that this process has started; undefined: none, as that of an earlier agent runs. */
  readonly started: StartedProgram | undefined;
  /**
   * True: the proxy stays when the start of the agent fails, because replicas of an earlier agent or
   * clients of the ingress may use it.
   */
  readonly outlivesFailedStart: boolean;
}

/**
 * Starts the network proxy of a node. Does not wait for its answer, and leaves a proxy that runs as
 * it is. Call this function while the data directory is locked.
 * @returns Undefined when the node has no proxy, or the directory belongs to another node, whose
 *   proxy stays as it is while the agent refuses to start.
 * @throws as {@link FileAgentStore.load}, or an error of the file system.
 */
export async function startEarlyProxy(
  config: Pick<AgentConfig, 'network' | keyof Parameters<typeof createProxySettings>[0]>,
  proxyCommand: readonly string[],
): Promise<EarlyProxy | undefined> {
  const { network, dataDir } = config;
  if (network === 'off' || process.platform !== 'linux') return undefined;
  const store = new FileAgentStore(dataDir);
  const identity = await store.loadIdentity();
  if (identity !== undefined && identity.nodeId !== config.name) return undefined;
  const settings = createProxySettings(config, identity);
  const program = toProxyProgram(dataDir, proxyCommand);
  const mayServe = settings.ingressHttp !== undefined || settings.ingressHttps !== undefined;
  // A node that was never in a cluster has no replicas, and no routes to serve.
  const outlivesFailedStart =
    identity?.clusterId !== undefined && (mayServe || (await store.hasReplicas()));
  const isRunning = await acceptsControl(program.directory);
  return {
    ...{ settings, outlivesFailedStart },
    started: isRunning ? undefined : tryStart(program, settings),
  };
}

/** Ends a proxy that was started for an agent that does not start. */
export function abandonProxy(proxy: EarlyProxy | undefined): void {
  if (proxy?.outlivesFailedStart === false) proxy.started?.terminate();
}

/** The agent tries again, and logs the reason, when the proxy cannot be started now. */
function tryStart(program: BackgroundProgram, settings: ProxySettings): StartedProgram | undefined {
  try {
    writeProxySettings(settings);
    const started = startBackgroundProgram(program);
    started.unref();
    return started;
  } catch {
    return undefined;
  }
}
