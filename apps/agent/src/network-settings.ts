import type { ConfigField, Violation } from '@cloudless/base';
import type { AgentConfig } from './agent-config.js';
import { usesTls } from './tls-settings.js';

/** Hosts that stand for all addresses of the machine. */
const EVERY_ADDRESS: readonly string[] = ['0.0.0.0', '::', '[::]'];

/** Parses `host:port` with a host that other machines can dial. */
export const parseAdvertise: ConfigField<string>['parse'] = (raw) => {
  const match =
    typeof raw === 'string'
      ? /^(?<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]{1,253}):(?<port>\d{1,5})$/.exec(raw)
      : null;
  const { host = '', port = '0' } = match?.groups ?? {};
  if (Number(port) >= 1 && Number(port) <= 65_535 && !EVERY_ADDRESS.includes(host))
    return { value: `${host}:${port}` };
  return { problem: `"${String(raw)}" must be host:port, such as 10.0.0.5:9443` };
};

/** Parses a share, 0 to 1. */
export const parseShare: ConfigField<number>['parse'] = (raw) => {
  const isNumber = typeof raw === 'number' || (typeof raw === 'string' && /^[\d.]+$/.test(raw));
  const share = isNumber ? Number(raw) : NaN;
  if (share >= 0 && share <= 1) return { value: share };
  return { problem: `"${String(raw)}" must be a number from 0 to 1, such as 0.01` };
};

/** Returns a problem for each setting of the network that conflicts with another setting. */
export function findNetworkConflicts(
  config: Pick<
    AgentConfig,
    'coordinator' | 'network' | 'meshListen' | 'meshAdvertise' | 'ingressHttp' | 'ingressHttps'
  >,
): readonly Violation[] {
  const { network, meshListen, meshAdvertise } = config;
  const problems: Violation[] = [];
  if (network === 'on' && process.platform !== 'linux')
    problems.push({ field: 'network', message: 'on needs Linux; use auto or off' });
  for (const field of ['ingressHttp', 'ingressHttps'] as const)
    if (network === 'off' && config[field] !== undefined)
      problems.push({ field, message: 'has no effect with --network off: remove one of the two' });
  if (meshListen === undefined) {
    if (meshAdvertise === undefined) return problems;
    const message = 'needs --mesh-listen, the address at which this node accepts connections';
    return [...problems, { field: 'meshAdvertise', message }];
  }
  if (network === 'off') {
    const message = 'has no effect with --network off: remove one of the two';
    return [...problems, { field: 'meshListen', message }];
  }
  if (!usesTls(config)) {
    const message =
      'needs coordinators with https://: traffic between machines is always encrypted, and a cluster without TLS has no certificates';
    problems.push({ field: 'meshListen', message });
  }
  if (EVERY_ADDRESS.includes(meshListen.host) && meshAdvertise === undefined) {
    const message = `"${meshListen.host}" is no address that other nodes can dial: add --mesh-advertise HOST:PORT`;
    problems.push({ field: 'meshListen', message });
  }
  return problems;
}
