import type { DescMethod } from '@bufbuild/protobuf';
import {
  AdminService,
  CoordinatorService,
  IdentityService,
  SecretsService,
  UserService,
} from '@cloudless/api';
import { Health } from '@cloudless/api/grpc';
import { ANONYMOUS_LOOPBACK, type Grant, type Principal } from '../principal.js';
import { ACCESS_TABLE_SERVICES, checkCall, getAccessRule } from './index.js';

const aUser = (...grants: readonly Grant[]): Principal => ({
  kind: 'user',
  name: 'user/ada',
  userName: 'ada',
  grants,
});
const principals = {
  unauthenticated: { kind: 'unauthenticated', name: 'unauthenticated' },
  'a user without roles': aUser(),
  'a viewer of a namespace': aUser({ role: 'viewer', namespace: 'shop' }),
  'an operator of a namespace': aUser({ role: 'operator', namespace: 'shop' }),
  'an admin of a namespace': aUser({ role: 'admin', namespace: 'shop' }),
  'a viewer of the cluster': aUser({ role: 'viewer', namespace: '' }),
  'an operator of the cluster': aUser({ role: 'operator', namespace: '' }),
  'an admin of the cluster': aUser({ role: 'admin', namespace: '' }),
  'a node': { kind: 'node', name: 'node/n1', nodeId: 'n1' },
  'a node with an expired certificate': {
    kind: 'expired-node',
    name: 'node/n1',
    nodeId: 'n1',
    expiredAtMs: 0,
  },
  'a coordinator': { kind: 'controller', name: 'controller/coordinator' },
  'a workload': { kind: 'workload', name: 'workload/shop.web' },
  'a service': { kind: 'service', name: 'service/web' },
} as const satisfies Record<string, Principal>;

const { method: coordinator } = CoordinatorService;
const methods = ACCESS_TABLE_SERVICES.flatMap((service): readonly DescMethod[] => service.methods);

const listAllowed = (method: DescMethod): readonly string[] =>
  Object.entries(principals)
    .filter(([, principal]) => checkCall(getAccessRule(method), principal).allowed)
    .map(([name]) => name);

describe('getAccessRule', () => {
  it.each(methods.map((method) => ({ name: `${method.parent.name}.${method.name}`, method })))(
    'has a rule for $name that permits some principal',
    ({ method }) => {
      expect(Object.keys(getAccessRule(method) ?? {})).not.toHaveLength(0);
    },
  );

  it.each(['makeCoffee', 'constructor', '__proto__', 'toString'])(
    'has no rule for the unknown RPC %s',
    (localName) => {
      const unknown = { ...coordinator.getNode, localName } as DescMethod;
      expect(getAccessRule(unknown)).toBeUndefined();
    },
  );

  it('has no rule for an RPC of an unknown service', () => {
    const parent = { ...CoordinatorService, typeName: 'evil.CoordinatorService' };
    const foreign = { ...coordinator.getServerInfo, parent } as DescMethod;
    expect(getAccessRule(foreign)).toBeUndefined();
  });

  it('permits calls without an identity only for health checks and the enrolment of nodes', () => {
    const open = methods.filter((method) => getAccessRule(method)?.unauthenticated === true);
    expect(open.map(({ name }) => name).sort()).toEqual(['Check', 'EnrollNode', 'Watch']);
  });

  it('permits a node with an expired certificate only the renewal and what everybody may', () => {
    const permitted = methods.filter(
      (method) =>
        checkCall(getAccessRule(method), principals['a node with an expired certificate']).allowed,
    );
    expect(permitted.map(({ name }) => name).sort()).toEqual([
      'Check',
      'EnrollNode',
      'RenewNodeCertificate',
      'Watch',
    ]);
  });

  it('gives one RPC both to nodes and to users, besides what every identity may call', () => {
    const shared = methods.filter((method) => {
      const rule = getAccessRule(method);
      return rule?.node !== undefined && rule.user !== undefined;
    });
    // Nodes check endpoints outside the cluster; users set the health of those without a check.
    expect(shared.map(({ name }) => name)).toEqual(['UpdateEndpointHealth']);
  });
});

const namespaceRoles = ['viewer', 'operator', 'admin'].map((role) => `a ${role} of a namespace`);
const clusterRoles = ['viewer', 'operator', 'admin'].map((role) => `a ${role} of the cluster`);
const withArticle = (names: readonly string[]): readonly string[] =>
  names.map((name) => name.replace(/^a (?=[ao])/, 'an '));
const rolesFrom = (first: 'viewer' | 'operator' | 'admin', scope: 'namespace' | 'cluster') => {
  const start = ['viewer', 'operator', 'admin'].indexOf(first);
  return withArticle([
    ...(scope === 'namespace' ? namespaceRoles.slice(start) : []),
    ...clusterRoles.slice(start),
  ]);
};

describe('checkCall', () => {
  it.each([
    { method: coordinator.getWorkload, allowed: rolesFrom('viewer', 'namespace') },
    { method: coordinator.listWorkloads, allowed: rolesFrom('viewer', 'namespace') },
    { method: coordinator.scaleWorkload, allowed: rolesFrom('operator', 'namespace') },
    { method: coordinator.exec, allowed: rolesFrom('operator', 'namespace') },
    { method: coordinator.listNodes, allowed: rolesFrom('viewer', 'cluster') },
    { method: coordinator.drainNode, allowed: rolesFrom('operator', 'cluster') },
    { method: coordinator.removeNode, allowed: rolesFrom('admin', 'cluster') },
    { method: AdminService.method.backup, allowed: rolesFrom('admin', 'cluster') },
    { method: IdentityService.method.createJoinToken, allowed: rolesFrom('admin', 'cluster') },
    { method: UserService.method.grant, allowed: rolesFrom('admin', 'namespace') },
    { method: coordinator.session, allowed: ['a node'] },
    { method: IdentityService.method.issueWorkloadCertificate, allowed: ['a node'] },
    {
      method: UserService.method.createUserToken,
      allowed: ['a user without roles', ...rolesFrom('viewer', 'namespace')],
    },
    {
      method: coordinator.getServerInfo,
      allowed: ['a user without roles', ...rolesFrom('viewer', 'namespace'), 'a node'],
    },
    // With an access token in the request: the handler decides.
    ...[SecretsService.method.getSecret, SecretsService.method.validateAccessToken].map(
      (method) => ({
        method,
        allowed: [
          'a user without roles',
          ...rolesFrom('viewer', 'namespace'),
          'a workload',
          'a service',
        ],
      }),
    ),
    { method: Health.method.check, allowed: Object.keys(principals) },
  ])('permits $method.name exactly to $allowed', ({ method, allowed }) => {
    expect(listAllowed(method)).toEqual(allowed);
  });

  it('permits no caller an RPC without a rule, not even in a cluster without TLS', () => {
    for (const principal of [...Object.values(principals), ANONYMOUS_LOOPBACK])
      expect(checkCall(undefined, principal)).toMatchObject({ allowed: false, code: 'denied' });
  });

  it('permits no caller an RPC whose rule is empty, except in a cluster without TLS', () => {
    for (const principal of Object.values(principals))
      expect(checkCall({}, principal).allowed).toBe(false);
    expect(checkCall({}, ANONYMOUS_LOOPBACK).allowed).toBe(true);
  });

  it.each([
    [
      'unauthenticated',
      coordinator.listWorkloads,
      'unauthenticated',
      'the call has no identity; log in with "cloudlessctl login", or send a bearer token',
    ],
    [
      'a viewer of a namespace',
      coordinator.scaleWorkload,
      'denied',
      'user/ada does not have the role operator in any namespace; ask an administrator for the role',
    ],
    [
      'an admin of a namespace',
      coordinator.removeNode,
      'denied',
      'user/ada does not have the role admin in the whole cluster; ask an administrator for the role',
    ],
    [
      'an admin of the cluster',
      coordinator.session,
      'denied',
      'user/ada may not make this call: the call is not for users',
    ],
    [
      'a node',
      coordinator.listNodes,
      'denied',
      'node/n1 may not make this call: the call is not for nodes',
    ],
    [
      'a node with an expired certificate',
      coordinator.session,
      'unauthenticated',
      'the certificate of node/n1 expired at 1970-01-01T00:00:00.000Z; only its renewal is possible',
    ],
    [
      'a workload',
      coordinator.getServerInfo,
      'denied',
      'workload/shop.web may not make this call: the call is not for workloads',
    ],
  ] as const)('tells %s why a call is refused', (name, method, code, message) => {
    expect(checkCall(getAccessRule(method), principals[name])).toMatchObject({ code, message });
  });
});
