import fc from 'fast-check';
import { parse } from 'yaml';
import { create, fromJson } from '@bufbuild/protobuf';
import { RolloutSchema, WorkloadSpecSchema } from '@cloudless/api';
import { explainImpossibleLimits } from '@cloudless/controllers';
import { convertManifests } from './convert.js';

interface ConvertedSpec {
  readonly ports?: unknown;
  readonly resources?: unknown;
  readonly rollout?: Readonly<Record<string, number>>;
}

/** Converts a controller with fields of `spec` and of its container. */
function convert(
  kind: string,
  spec: string,
  container = 'image: nginx',
): { readonly spec: ConvertedSpec; readonly notes: readonly string[] } {
  const text = `{apiVersion: apps/v1, kind: ${kind}, metadata: {name: web}, spec: {${spec}${spec === '' ? '' : ', '}template: {spec: {containers: [{${container}}]}}}}`;
  const conversion = convertManifests([{ file: 'in', bytes: new TextEncoder().encode(text) }], {});
  if ('problem' in conversion) throw new Error(conversion.problem);
  return {
    spec: (parse(conversion.manifest) as { spec: ConvertedSpec }).spec,
    notes: conversion.notes
      .map(({ path, message }) => `${path}: ${message}`)
      .filter((note) => !note.startsWith('kind: StatefulSet')),
  };
}

const rolling = (fields: string, key = 'strategy'): string =>
  `${key}: {type: RollingUpdate, rollingUpdate: {${fields}}}`;

describe('convertManifests of the strategy of a Kubernetes object', () => {
  it.each<[string, string, unknown]>([
    ['Deployment', '', undefined],
    ['Deployment', 'replicas: 3', { minAvailable: 3 }],
    ['Deployment', 'replicas: 4', { maxUnavailable: 1 }],
    ['Deployment', 'replicas: 8', { maxSurge: 2, maxUnavailable: 2 }],
    ['Deployment', 'replicas: 3, strategy: {type: RollingUpdate}', { minAvailable: 3 }],
    [
      'Deployment',
      `replicas: 3, ${rolling('maxUnavailable: 0, maxSurge: 1')}`,
      { maxSurge: 1, minAvailable: 3 },
    ],
    [
      'Deployment',
      `replicas: 3, ${rolling('maxUnavailable: 2, maxSurge: 0')}`,
      { maxSurge: 0, maxUnavailable: 2 },
    ],
    ['Deployment', `replicas: 3, ${rolling('maxSurge: 0')}`, { maxSurge: 0, maxUnavailable: 1 }],
    ['Deployment', 'replicas: 3, strategy: {type: Recreate}', { strategy: 'RECREATE' }],
    ['ReplicaSet', 'replicas: 3', undefined],
    ['StatefulSet', 'replicas: 1', { maxSurge: 0, maxUnavailable: 1 }],
    [
      'StatefulSet',
      `replicas: 5, ${rolling('maxUnavailable: 2', 'updateStrategy')}`,
      { maxSurge: 0, maxUnavailable: 2 },
    ],
    ['DaemonSet', '', { maxUnavailable: 1 }],
    [
      'DaemonSet',
      rolling('maxUnavailable: 3, maxSurge: 0', 'updateStrategy'),
      { maxUnavailable: 3 },
    ],
  ])('keeps the availability of a %s with "%s" without a note', (kind, fields, expected) => {
    const { spec, notes } = convert(kind, fields);
    expect(notes).toEqual([]);
    expect(spec.rollout).toEqual(expected);
  });

  it.each<[string, string, unknown, string]>([
    [
      'Deployment',
      `replicas: 3, ${rolling('maxUnavailable: 25%')}`,
      { minAvailable: 3 },
      'maxUnavailable: 25% of 3 replicas became 0',
    ],
    [
      'Deployment',
      `replicas: 3, ${rolling('maxUnavailable: 0, maxSurge: 0')}`,
      { maxSurge: 0, maxUnavailable: 1 },
      'maxUnavailable: became 1: without a surge',
    ],
    [
      'Deployment',
      `replicas: 3, ${rolling('maxSurge: some')}`,
      { minAvailable: 3 },
      'maxSurge: expected a number or a percentage, got "some": became 25%',
    ],
    ['Deployment', 'replicas: 0', undefined, 'spec.replicas: without replicas'],
    ['Deployment', 'strategy: {type: Other}', undefined, 'strategy.type: Other has no equivalent'],
    [
      'StatefulSet',
      rolling('partition: 1', 'updateStrategy'),
      { maxSurge: 0, maxUnavailable: 1 },
      'rollingUpdate.partition: has no equivalent',
    ],
    [
      'DaemonSet',
      rolling('maxUnavailable: 10%', 'updateStrategy'),
      { maxUnavailable: 1 },
      'maxUnavailable: a percentage of nodes has no equivalent: became 1',
    ],
    [
      'DaemonSet',
      rolling('maxUnavailable: 0, maxSurge: 1', 'updateStrategy'),
      { maxUnavailable: 1 },
      'maxSurge: has no equivalent: the old replica of a node stops first',
    ],
    ['ReplicaSet', 'strategy: {type: Recreate}', undefined, 'spec.strategy: has no equivalent'],
  ])('names what changes of a %s with "%s"', (kind, fields, expected, note) => {
    const { spec, notes } = convert(kind, fields);
    expect(spec.rollout).toEqual(expected);
    expect(notes.join('\n')).toContain(note);
  });

  it('keeps replicas - maxUnavailable of a Deployment, with a possible move, for any values', () => {
    const count = fc.oneof(
      fc.nat({ max: 12 }).map((value) => ({ value, text: String(value), isPercent: false })),
      fc.nat({ max: 100 }).map((value) => ({ value, text: `${value}%`, isPercent: true })),
      fc.constant({ value: 25, text: undefined, isPercent: true }),
    );
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), count, count, (replicas, surge, unavailable) => {
        const keys = [
          ...(surge.text === undefined ? [] : [`maxSurge: ${surge.text}`]),
          ...(unavailable.text === undefined ? [] : [`maxUnavailable: ${unavailable.text}`]),
        ];
        const { rollout = {} } = convert(
          'Deployment',
          `replicas: ${replicas}, ${rolling(keys.join(', '))}`,
        ).spec;
        const part = ({ value, isPercent }: typeof surge): number =>
          isPercent ? (replicas * value) / 100 : value;
        const maxSurge = Math.ceil(part(surge));
        const rounded = Math.floor(part(unavailable));
        const maxUnavailable = maxSurge === 0 && rounded === 0 ? 1 : rounded;

        expect(rollout['maxSurge'] ?? 1).toBe(maxSurge);
        expect(explain(replicas, rollout)).toBeUndefined();
        // Without a surge, the coordinator allows a move exactly when a replica may be unavailable.
        const withoutSurge = explain(replicas, { ...rollout, maxSurge: 0 });
        if (maxUnavailable === 0)
          expect(withoutSurge).toContain(`min_available ${replicas} of ${replicas}`);
        else {
          expect(withoutSurge).toBeUndefined();
          expect(rollout).toMatchObject({ maxUnavailable });
          expect(rollout).not.toHaveProperty('minAvailable');
        }
      }),
    );
  });
});

/** Returns the reason why the coordinator would refuse these limits. */
function explain(replicas: number, rollout: Readonly<Record<string, number>>): string | undefined {
  return explainImpossibleLimits(
    create(WorkloadSpecSchema, { replicas, rollout: fromJson(RolloutSchema, rollout) }),
  );
}

describe('convertManifests of the container of a Kubernetes object', () => {
  it.each<[string, unknown]>([
    [
      'limits: {cpu: 1, memory: 2Gi}',
      {
        requests: { cpuMillis: '1000m', memoryBytes: '2Gi' },
        limits: { cpuMillis: '1000m', memoryBytes: '2Gi' },
      },
    ],
    [
      'requests: {cpu: 100m}, limits: {cpu: 1, memory: 2Gi}',
      {
        requests: { cpuMillis: '100m', memoryBytes: '2Gi' },
        limits: { cpuMillis: '1000m', memoryBytes: '2Gi' },
      },
    ],
    ['requests: {memory: 1Gi}', { requests: { memoryBytes: '1Gi' } }],
  ])('requests the limits that have no request: %s', (resources, expected) => {
    const { spec, notes } = convert('Deployment', '', `image: a, resources: {${resources}}`);
    expect(notes).toEqual([]);
    expect(spec.resources).toEqual(expected);
  });

  it.each<[string, unknown, string | undefined]>([
    ['readinessProbe: {httpGet: {port: 80}}', [{ containerPort: 80 }], undefined],
    [
      'ports: [{name: web, containerPort: 80}], readinessProbe: {httpGet: {port: web}}, livenessProbe: {tcpSocket: {port: 81}}, startupProbe: {grpc: {port: 81}}',
      [{ name: 'web', containerPort: 80 }, { containerPort: 81 }],
      undefined,
    ],
    [
      'ports: [{containerPort: 80, protocol: UDP}], readinessProbe: {tcpSocket: {port: 80}}',
      [
        { containerPort: 80, protocol: 'UDP' },
        { name: 'port-80-2', containerPort: 80 },
      ],
      undefined,
    ],
    [
      'livenessProbe: {tcpSocket: {port: 81}}',
      [{ containerPort: 81 }],
      'livenessProbe.tcpSocket.port: the workload declares the port 81 now',
    ],
    [
      'readinessProbe: {httpGet: {port: web}}',
      undefined,
      'readinessProbe.httpGet.port: the container has no TCP port web',
    ],
    ['readinessProbe: {httpGet: {path: /}}', undefined, 'readinessProbe.httpGet: names no port'],
    [
      'ports: [{containerPort: 5, protocol: SCTP}]',
      [{ containerPort: 5 }],
      'ports[0].protocol: SCTP has no equivalent: became TCP',
    ],
  ])('declares or names the ports of %s', (container, ports, note) => {
    const { spec, notes } = convert('Deployment', '', `image: a, ${container}`);
    expect(spec.ports).toEqual(ports);
    if (note === undefined) expect(notes).toEqual([]);
    else expect(notes.join('\n')).toContain(note);
  });
});
