import { ANONYMOUS_LOOPBACK, getPrincipal, hasRole } from './index.js';
import type { Grant, Principal, RoleName } from './index.js';

const user = (...grants: Grant[]): Principal => ({
  kind: 'user',
  name: 'user/ada',
  userName: 'ada',
  grants,
});

describe('hasRole', () => {
  const roles: readonly RoleName[] = ['viewer', 'operator', 'admin'];
  it.each(
    roles.flatMap((granted, has) =>
      roles.map((needed, needs) => ({ granted, needed, expected: has >= needs })),
    ),
  )('for $granted when $needed is needed: $expected', ({ granted, needed, expected }) => {
    expect(hasRole(user({ role: granted, namespace: '' }), needed, 'shop')).toBe(expected);
    expect(hasRole(user({ role: granted, namespace: '' }), needed, '')).toBe(expected);
    expect(hasRole(user({ role: granted, namespace: 'shop' }), needed, 'shop')).toBe(expected);
    expect(hasRole(user({ role: granted, namespace: 'shop' }), needed, 'shop2')).toBe(false);
    expect(hasRole(user({ role: granted, namespace: 'shop' }), needed, '')).toBe(false);
  });

  it('takes the strongest of several grants', () => {
    const ada = user({ role: 'viewer', namespace: '' }, { role: 'admin', namespace: 'shop' });
    expect(hasRole(ada, 'admin', 'shop')).toBe(true);
    expect(hasRole(ada, 'operator', 'bank')).toBe(false);
  });

  it.each<[string, Principal]>([
    ['a user without grants', user()],
    ['an unauthenticated client', { kind: 'unauthenticated', name: 'unauthenticated' }],
    ['a node', { kind: 'node', name: 'node/a', nodeId: 'a' }],
    ['an expired node', { kind: 'expired-node', name: 'node/a', nodeId: 'a', expiredAtMs: 0 }],
    ['a controller', { kind: 'controller', name: 'controller/coordinator' }],
    ['a workload', { kind: 'workload', name: 'workload/default.web' }],
    ['a service', { kind: 'service', name: 'service/dns' }],
  ])('is false for %s', (_, principal) => {
    expect(hasRole(principal, 'viewer', 'default')).toBe(false);
    expect(hasRole(principal, 'viewer', '')).toBe(false);
  });

  it('is true for every client of a cluster without TLS', () => {
    expect(hasRole(ANONYMOUS_LOOPBACK, 'admin', '')).toBe(true);
  });
});

describe('getPrincipal', () => {
  it.each(['127.0.0.1', '::1', '::ffff:127.0.0.1'])(
    'returns the anonymous principal for a call from %s',
    (remoteAddress) => {
      expect(getPrincipal({ remoteAddress })).toEqual({
        kind: 'anonymous-loopback',
        name: 'anonymous@loopback',
      });
    },
  );

  it.each(['', '10.0.0.1', '::ffff:10.0.0.1'])(
    'rejects a call from %j with unauthenticated',
    (remoteAddress) => {
      expect(() => getPrincipal({ remoteAddress })).toThrow(
        expect.objectContaining({ kind: 'unauthenticated' }),
      );
    },
  );
});
