import type { ConfigField, ConfigLayer, Violation } from '@cloudless/base';
import { isLoopbackHost, parseToken } from '@cloudless/identity';
import type { AgentConfig } from './agent-config.js';

/** Environment variable with a join token, as in the commands that cloudlessctl prints. */
export const JOIN_TOKEN_VARIABLE = 'CLOUDLESS_JOIN_TOKEN';

/** Returns the layer of settings with the token in {@link JOIN_TOKEN_VARIABLE}. */
export function createJoinTokenLayer(
  env: Readonly<Record<string, string | undefined>>,
): ConfigLayer {
  return {
    source: 'environment',
    values: { joinToken: env[JOIN_TOKEN_VARIABLE] },
    nameOf: () => JOIN_TOKEN_VARIABLE,
  };
}

/** True when the agent belongs to a cluster with identities. */
export function usesTls({ coordinator }: Pick<AgentConfig, 'coordinator'>): boolean {
  return coordinator.some((address) => address.startsWith('https:'));
}

/** Returns a problem for each setting that conflicts with the addresses of the coordinators. */
export function findTlsConflicts(
  config: Pick<AgentConfig, 'coordinator' | 'joinToken' | 'joinTokenFile' | 'listen' | 'opsListen'>,
): readonly Violation[] {
  if (usesTls(config)) {
    if (config.coordinator.every((address) => address.startsWith('https:'))) return [];
    const message = 'has addresses with https:// and with http://; a cluster has one of the two';
    return [{ field: 'coordinator', message }];
  }
  const problems: Violation[] = [];
  for (const field of ['joinToken', 'joinTokenFile'] as const) {
    if (config[field] === undefined) continue;
    const message = 'needs a coordinator with https://; a cluster without TLS has no join tokens';
    problems.push({ field, message });
  }
  for (const field of ['listen', 'opsListen'] as const) {
    const host = config[field]?.host;
    if (host === undefined || isLoopbackHost(host)) continue;
    problems.push({
      field,
      message: `"${host}" is not a loopback address; without TLS only 127.0.0.1, [::1] and localhost are served: use a coordinator with https://`,
    });
  }
  return problems;
}

/** The problems do not repeat the text, which may be a secret with a mistake. */
export const parseJoinToken: ConfigField<string>['parse'] = (raw) => {
  const text = typeof raw === 'string' ? raw.trim() : '';
  const problem = findJoinTokenProblem(text);
  return problem === undefined ? { value: text } : { problem };
};

/** Returns what is wrong with the text of a join token; undefined when nothing is. */
export function findJoinTokenProblem(text: string): string | undefined {
  const token = parseToken(text);
  if (token?.kind === 'join') return undefined;
  return token === undefined
    ? 'is no join token; a join token begins with "cl1." and is shown once, by cloudlessctl token create'
    : 'is the token of a user; machines join with a join token: cloudlessctl token create';
}
