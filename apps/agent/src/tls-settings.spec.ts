import { describe, expect, it } from '@jest/globals';
import { InvalidInputError } from '@cloudless/base';
import type { AgentConfig } from './agent-config.js';
import { parseAgentConfig } from './config.js';
import { createJoinTokenLayer, findJoinTokenProblem } from './tls-settings.js';

const JOIN_TOKEN = `cl1.abcdefghij12.${'s'.repeat(42)}A.${'0'.repeat(64)}`;
const USER_TOKEN = JOIN_TOKEN.replace('cl1', 'clu1');
const SECURE = { coordinator: 'https://a.example:8080' };

function parse(values: Record<string, unknown>, env: Record<string, string> = {}): AgentConfig {
  return parseAgentConfig([createJoinTokenLayer(env), { source: 'test', values }], { HOME: '/h' });
}

function problemsOf(
  values: Record<string, unknown>,
  env: Record<string, string> = {},
): readonly string[] {
  try {
    parse(values, env);
    return [];
  } catch (reason) {
    if (!(reason instanceof InvalidInputError)) throw reason;
    return reason.violations.map(({ field, message }) => `${field}: ${message}`);
  }
}

describe('join tokens in the settings', () => {
  it('come from a flag, or else from CLOUDLESS_JOIN_TOKEN', () => {
    const env = { CLOUDLESS_JOIN_TOKEN: JOIN_TOKEN };
    const other = JOIN_TOKEN.replace('cl1.a', 'cl1.b');
    expect(parse(SECURE, env).joinToken).toBe(JOIN_TOKEN);
    expect(parse({ ...SECURE, joinToken: other }, env).joinToken).toBe(other);
  });

  it.each([
    { name: 'a flag', values: { joinToken: 'secret-x' }, env: {}, place: 'test: joinToken' },
    {
      name: 'the environment',
      values: {},
      env: { CLOUDLESS_JOIN_TOKEN: 'secret-x' },
      place: 'environment: CLOUDLESS_JOIN_TOKEN',
    },
  ])(
    'are refused without a word of their text when malformed in $name',
    ({ values, env, place }) => {
      const problems = problemsOf({ ...SECURE, ...values }, env as Record<string, string>);
      expect(problems).toEqual([
        `${place}: is no join token; a join token begins with "cl1." and is shown once, by cloudlessctl token create`,
      ]);
    },
  );

  it('are refused when they are tokens of users', () => {
    expect(findJoinTokenProblem(USER_TOKEN)).toBe(
      'is the token of a user; machines join with a join token: cloudlessctl token create',
    );
    expect(findJoinTokenProblem(JOIN_TOKEN)).toBeUndefined();
  });

  it.each(['joinToken', 'joinTokenFile'])('need a coordinator with TLS: %s', (field) => {
    expect(problemsOf({ [field]: JOIN_TOKEN })).toEqual([
      `${field}: needs a coordinator with https://; a cluster without TLS has no join tokens`,
    ]);
  });
});

describe('addresses', () => {
  it.each(['listen', 'opsListen'])(
    '%s may be reached from other machines only with TLS',
    (field) => {
      expect(parse({ ...SECURE, [field]: '0.0.0.0:9092' })).toMatchObject({
        [field]: { host: '0.0.0.0', port: 9092 },
      });
      expect(problemsOf({ [field]: '0.0.0.0:9092' })).toEqual([
        `${field}: "0.0.0.0" is not a loopback address; without TLS only 127.0.0.1, [::1] and localhost are served: use a coordinator with https://`,
      ]);
    },
  );

  it('of coordinators have one scheme', () => {
    expect(problemsOf({ coordinator: 'https://a.example,http://127.0.0.1:1' })).toEqual([
      'coordinator: has addresses with https:// and with http://; a cluster has one of the two',
    ]);
  });
});
