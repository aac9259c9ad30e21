import { isIPv4, isIPv6 } from 'node:net';
import type { ConfigField, Violation } from '@cloudless/base';
import { isLoopbackHost } from '@cloudless/identity';
import type { AgentConfig } from './agent-config.js';
import { usesTls } from './tls-settings.js';

/** Port at which proxies listen for other nodes unless a setting says otherwise. */
const DEFAULT_MESH_PORT = 9_443;

/** Hosts that stand for all addresses of the machine. */
const EVERY_ADDRESS: readonly string[] = ['0.0.0.0', '::', '[::]'];

/** Parses `ip:port` with an address that other machines can dial. Proxies do not resolve names. */
export const parseAdvertise: ConfigField<string>['parse'] = (raw) => {
  const match =
    typeof raw === 'string' ? /^(?<host>\[[^\]]+\]|[^:]+):(?<port>\d{1,5})$/.exec(raw) : null;
  const { host = '', port = '0' } = match?.groups ?? {};
  const isAddress = isIPv4(host) || (host.startsWith('[') && isIPv6(host.slice(1, -1)));
  const isPort = Number(port) >= 1 && Number(port) <= 65_535;
  if (isAddress && isPort && !EVERY_ADDRESS.includes(host)) return { value: `${host}:${port}` };
  return {
    problem: `"${String(raw)}" must be an IP address and a port, such as 10.0.0.5:9443`,
  };
};

/** Parses a share, 0 to 1. */
export const parseShare: ConfigField<number>['parse'] = (raw) => {
  const isNumber = typeof raw === 'number' || (typeof raw === 'string' && /^[\d.]+$/.test(raw));
  const share = isNumber ? Number(raw) : NaN;
  if (share >= 0 && share <= 1) return { value: share };
  return { problem: `"${String(raw)}" must be a number from 0 to 1, such as 0.01` };
};

/**
 * Returns the port at which the proxy listens for other nodes when `meshListen` is absent; undefined:
 * the proxy does not listen by default, because the cluster has no TLS, its coordinator is on this
 * machine only, or another setting of this agent uses the port.
 */
export function findDefaultMeshPort(
  config: Pick<
    AgentConfig,
    | 'coordinator'
    | 'meshListen'
    | 'portRange'
    | 'listen'
    | 'opsListen'
    | 'ingressHttp'
    | 'ingressHttps'
  >,
): number | undefined {
  const { coordinator, meshListen, portRange, ...others } = config;
  const { listen, opsListen, ingressHttp, ingressHttps } = others;
  if (meshListen !== undefined || !usesTls(config)) return undefined;
  if (isLoopbackHost(new URL(coordinator[0] ?? '').hostname)) return undefined;
  const used = [listen, opsListen, ingressHttp, ingressHttps].map((address) => address?.port);
  const isUsed =
    used.includes(DEFAULT_MESH_PORT) ||
    (portRange.from <= DEFAULT_MESH_PORT && DEFAULT_MESH_PORT <= portRange.to);
  return isUsed ? undefined : DEFAULT_MESH_PORT;
}

/** Returns a problem for each setting of the network that conflicts with another setting. */
export function findNetworkConflicts(
  config: Pick<AgentConfig, 'network' | 'meshAdvertise'> &
    Parameters<typeof findDefaultMeshPort>[0],
): readonly Violation[] {
  const { network, meshListen, meshAdvertise } = config;
  const problems: Violation[] = [];
  if (network === 'on' && process.platform !== 'linux')
    problems.push({ field: 'network', message: 'on needs Linux; use auto or off' });
  const withoutEffect = 'has no effect with --network off: remove one of the two';
  for (const field of ['ingressHttp', 'ingressHttps'] as const)
    if (network === 'off' && config[field] !== undefined)
      problems.push({ field, message: withoutEffect });
  if (meshListen === undefined || meshListen === 'none') {
    if (meshAdvertise === undefined) return problems;
    const field = 'meshAdvertise';
    if (network === 'off') return [...problems, { field, message: withoutEffect }];
    if (meshListen === 'none') {
      const message = 'has no effect with --mesh-listen none: remove one of the two';
      return [...problems, { field, message }];
    }
    if (findDefaultMeshPort(config) !== undefined) return problems;
    const message =
      'needs --mesh-listen, the address at which this node accepts connections: with these settings there is none by default';
    return [...problems, { field, message }];
  }
  if (network === 'off') return [...problems, { field: 'meshListen', message: withoutEffect }];
  if (!usesTls(config)) {
    const message =
      'needs coordinators with https://: traffic between machines is always encrypted, and a cluster without TLS has no certificates';
    problems.push({ field: 'meshListen', message });
  }
  if (EVERY_ADDRESS.includes(meshListen.host) && meshAdvertise === undefined) {
    const message = `"${meshListen.host}" is no address that other nodes can dial: add --mesh-advertise IP:PORT`;
    problems.push({ field: 'meshListen', message });
  }
  return problems;
}
