import { join } from 'node:path';
import { definedFields } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import type { AgentConfig } from '../agent-config.js';
import { replaceFileSync } from '../data/replace-file.js';
import { findDefaultMeshPort } from '../network-settings.js';
import { usesTls } from '../tls-settings.js';
import { SETTINGS_FILE, type ProxySettings } from './control-messages.js';
import { readHostId } from './host-id.js';
import { NETWORK_FOLDER } from './proxy-program.js';

/** Coordinators that an agent has stored. */
type KnownCoordinators = readonly { readonly address: string }[];

/** Facts about the cluster that the coordinator has sent to the agent. */
interface KnownCluster {
  readonly clusterId?: string;
  readonly coordinators?: KnownCoordinators;
}

/**
 * Returns the settings of the network proxy of a node.
 * @param known - Facts from the coordinator. Default: none.
 */
export function createProxySettings(
  config: Pick<
    AgentConfig,
    | 'name'
    | 'zone'
    | 'region'
    | 'dataDir'
    | 'otlpEndpoint'
    | 'traceShare'
    | keyof Parameters<typeof findDefaultMeshPort>[0]
  >,
  { clusterId, coordinators }: KnownCluster = {},
): ProxySettings {
  const { name: nodeId, zone, region, dataDir, coordinator } = config;
  const { ingressHttp, ingressHttps, otlpEndpoint, traceShare } = config;
  const meshListen = config.meshListen === 'none' ? undefined : config.meshListen;
  const defaultMeshPort = findDefaultMeshPort(config);
  const traces =
    otlpEndpoint === undefined ? undefined : { endpoint: otlpEndpoint, share: traceShare };
  return {
    ...{ nodeId, zone, region, dataDir, hostId: readHostId(), usesTls: usesTls(config) },
    coordinators: listCoordinators(coordinator, coordinators),
    ...definedFields({ clusterId, meshListen, defaultMeshPort, ingressHttp, ingressHttps, traces }),
  };
}

/** Addresses for the proxy: the configured ones, then those of the coordinators that are known. */
export function listCoordinators(
  configured: readonly string[],
  known: KnownCoordinators = [],
): readonly string[] {
  const { protocol } = new URL(configured[0] ?? '');
  const all = new Set([...configured, ...known.map(({ address }) => address)]);
  return [...all].filter((address) => address.startsWith(protocol));
}

/** Writes the settings to the place where the proxy reads them, as {@link replaceFileSync} does. */
export function writeProxySettings(settings: ProxySettings): void {
  const directory = join(settings.dataDir, NETWORK_FOLDER);
  makeDirectorySync(directory, 0o700);
  replaceFileSync(join(directory, SETTINGS_FILE), JSON.stringify(settings));
}
