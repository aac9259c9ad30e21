import { create, equals, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { definedFields } from '@cloudless/base';
import {
  WorkloadSpecSchema,
  WorkloadSpec_Mode as Mode,
  diffSpecs,
  updateSpec,
  type WorkloadSpec,
} from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';

const arbSpec = arbitraryMessage(WorkloadSpecSchema);
const spec = (init: MessageInitShape<typeof WorkloadSpecSchema>): WorkloadSpec =>
  create(WorkloadSpecSchema, init);
const isSame = (a: WorkloadSpec, b: WorkloadSpec): boolean => equals(WorkloadSpecSchema, a, b);
const pathsOf = (a: WorkloadSpec, b: WorkloadSpec): string[] =>
  diffSpecs(a, b).map(({ path }) => path);

describe('updateSpec without a mask', () => {
  it.each([
    {
      name: 'a scalar',
      before: { replicas: 2, image: 'a' },
      patch: { replicas: 5 },
      after: { replicas: 5, image: 'a' },
    },
    {
      name: 'an explicit zero',
      before: { replicas: 2 },
      patch: { replicas: 0 },
      after: { replicas: 0 },
    },
    {
      name: 'a list as a whole',
      before: { command: ['a', 'b'] },
      patch: { command: ['c'] },
      after: { command: ['c'] },
    },
    {
      name: 'a map as a whole',
      before: { env: { A: '1', B: '2' } },
      patch: { env: { C: '3' } },
      after: { env: { C: '3' } },
    },
    {
      name: 'only the fields that are set within a message',
      before: { rollout: { maxSurge: 1, maxUnavailable: 2 } },
      patch: { rollout: { maxSurge: 0 } },
      after: { rollout: { maxSurge: 0, maxUnavailable: 2 } },
    },
    {
      name: 'a duration as one value',
      before: { terminationGracePeriod: { seconds: 1n, nanos: 5 } },
      patch: { terminationGracePeriod: { seconds: 2n } },
      after: { terminationGracePeriod: { seconds: 2n } },
    },
    {
      name: 'the case of a oneof',
      before: { livenessProbe: { check: { case: 'exec', value: { command: ['a'] } } } },
      patch: { livenessProbe: { check: { case: 'tcp', value: { port: 'http' } } } },
      after: { livenessProbe: { check: { case: 'tcp', value: { port: 'http' } } } },
    },
    { name: 'nothing', before: { image: 'a' }, patch: {}, after: { image: 'a' } },
  ] as const)('changes $name', ({ before, patch, after }) => {
    expect(updateSpec(spec(before as object), spec(patch as object), undefined)).toEqual(
      spec(after as object),
    );
    expect(updateSpec(spec(before as object), spec(patch as object), [])).toEqual(
      spec(after as object),
    );
  });

  it('is idempotent, keeps fields that the patch does not set, and does not share objects with its arguments', () => {
    fc.assert(
      fc.property(arbSpec, arbSpec, (current, patch) => {
        const [beforeCurrent, beforePatch] = [structuredClone(current), structuredClone(patch)];
        const updated = updateSpec(current, patch, undefined);
        expect(isSame(updateSpec(updated, patch, undefined), updated)).toBe(true);
        const named = new Set(
          pathsOf(create(WorkloadSpecSchema), patch).map((path) => path.split(/[.[]/)[0]),
        );
        for (const path of pathsOf(current, updated))
          expect(named).toContain(path.split(/[.[]/)[0]);
        updated.env['changed'] = 'later';
        updated.command.push('later');
        updated.rollout ??= create(WorkloadSpecSchema, { rollout: {} }).rollout!;
        updated.rollout.maxSurge = 99;
        expect({ current, patch }).toEqual({ current: beforeCurrent, patch: beforePatch });
      }),
      { numRuns: 50 },
    );
  });
});

describe('updateSpec with the mask "*"', () => {
  it.each([
    {
      name: 'replaces the whole spec',
      before: { image: 'a', replicas: 3 },
      patch: { command: ['b'], replicas: 1 },
      after: { command: ['b'], replicas: 1 },
    },
    {
      name: 'keeps the replica count when the patch has none',
      before: { image: 'a', replicas: 3 },
      patch: { image: 'b' },
      after: { image: 'b', replicas: 3 },
    },
    {
      name: 'adds no replica count when both have none',
      before: { image: 'a' },
      patch: { image: 'b' },
      after: { image: 'b' },
    },
    {
      name: 'applies an explicit zero',
      before: { replicas: 3 },
      patch: { replicas: 0 },
      after: { replicas: 0 },
    },
  ])('$name', ({ before, patch, after }) => {
    expect(updateSpec(spec(before), spec(patch), ['*'])).toEqual(spec(after));
  });
});

describe('updateSpec with a mask of paths', () => {
  it.each([
    {
      name: 'applies the named field only',
      paths: ['image'],
      before: { image: 'a', replicas: 1 },
      patch: { image: 'b', replicas: 9 },
      after: { image: 'b', replicas: 1 },
    },
    {
      name: 'clears a named field that the patch does not set',
      paths: ['image', 'env'],
      before: { image: 'a', env: { A: '1' } },
      patch: {},
      after: {},
    },
    {
      name: 'clears a field and keeps its message',
      paths: ['rollout.max_surge'],
      before: { rollout: { maxSurge: 1, minAvailable: 2 } },
      patch: {},
      after: { rollout: { minAvailable: 2 } },
    },
    {
      name: 'creates no message to clear a field in it',
      paths: ['rollout.max_surge'],
      before: {},
      patch: {},
      after: {},
    },
    {
      name: 'creates the messages that contain the field',
      paths: ['resources.requests.cpu_millis'],
      before: {},
      patch: { resources: { requests: { cpuMillis: 5, gpus: 1 } } },
      after: { resources: { requests: { cpuMillis: 5 } } },
    },
    {
      name: 'replaces a message as a whole',
      paths: ['rollout'],
      before: { rollout: { maxSurge: 1 } },
      patch: { rollout: { minAvailable: 2 } },
      after: { rollout: { minAvailable: 2 } },
    },
    {
      name: 'accepts a duplicate path',
      paths: ['image', 'image'],
      before: {},
      patch: { image: 'b' },
      after: { image: 'b' },
    },
  ])('$name', ({ paths, before, patch, after }) => {
    expect(updateSpec(spec(before), spec(patch), paths)).toEqual(spec(after));
  });

  it.each([
    { paths: ['*', 'image'], messages: ['"*" cannot be combined with other paths'] },
    {
      paths: ['imgae', 'replicas', 'rollout.surge'],
      messages: [
        '"imgae" is not a field of WorkloadSpec',
        '"rollout.surge": "surge" is not a field of Rollout',
      ],
    },
    { paths: ['maxSurge'], messages: ['"maxSurge" is not a field of WorkloadSpec'] },
    { paths: ['spec.image'], messages: ['"spec.image": "spec" is not a field of WorkloadSpec'] },
    { paths: [''], messages: ['"" is not a field of WorkloadSpec'] },
    { paths: ['rollout.'], messages: ['"rollout.": "" is not a field of Rollout'] },
    {
      paths: ['env.A'],
      messages: ['"env.A" is below "env", which can only be replaced as a whole'],
    },
    {
      paths: ['pre_stop_delay.seconds'],
      messages: [
        '"pre_stop_delay.seconds" is below "pre_stop_delay", which can only be replaced as a whole',
      ],
    },
    {
      paths: ['__proto__', 'constructor'],
      messages: [
        '"__proto__" is not a field of WorkloadSpec',
        '"constructor" is not a field of WorkloadSpec',
      ],
    },
  ])('rejects the mask $paths', ({ paths, messages }) => {
    expect(() => updateSpec(spec({}), spec({}), paths)).toThrow(
      expect.objectContaining({
        kind: 'invalid',
        violations: messages.map((message) => ({ field: 'update_mask', message })),
      }),
    );
  });

  it('turns one spec into another with a mask of the fields that differ', () => {
    fc.assert(
      fc.property(arbSpec, arbSpec, (a, b) => {
        const fields = [...new Set(pathsOf(a, b).map((path) => path.split(/[.[]/)[0] ?? ''))];
        const updated = fields.length === 0 ? a : updateSpec(a, b, fields);
        expect(diffSpecs(updated, b)).toEqual([]);
      }),
    );
  });

  it('turns one spec into another, except for empty messages, with a mask of the leaves that differ', () => {
    fc.assert(
      fc.property(arbSpec, arbSpec, (a, b) => {
        const leaves = [...new Set(pathsOf(a, b).map((path) => path.split('[')[0] ?? ''))];
        const updated = leaves.length === 0 ? a : updateSpec(a, b, leaves);
        const rest = diffSpecs(updated, b);
        expect(
          rest.filter(
            ({ before = {}, after = {} }) => JSON.stringify([before, after]) !== '[{},{}]',
          ),
        ).toEqual([]);
      }),
    );
  });
});

describe('diffSpecs', () => {
  it.each([
    {
      name: 'a scalar',
      before: { replicas: 1 },
      after: { replicas: 2 },
      changes: [{ path: 'replicas', before: 1, after: 2 }],
    },
    {
      name: 'an added field',
      before: {},
      after: { image: 'a' },
      changes: [{ path: 'image', after: 'a' }],
    },
    {
      name: 'a removed field',
      before: { replicas: 0 },
      after: {},
      changes: [{ path: 'replicas', before: 0 }],
    },
    {
      name: 'a nested field',
      before: { rollout: { maxSurge: 1 } },
      after: { rollout: { maxSurge: 0 } },
      changes: [{ path: 'rollout.max_surge', before: 1, after: 0 }],
    },
    {
      name: 'an added message with fields',
      before: {},
      after: { resources: { requests: { memoryBytes: 5n } } },
      changes: [{ path: 'resources.requests.memory_bytes', after: '5' }],
    },
    {
      name: 'an added empty message',
      before: {},
      after: { network: {} },
      changes: [{ path: 'network', after: {} }],
    },
    {
      name: 'keys of a map, sorted',
      before: { env: { B: '1', A: '1', C: '1' } },
      after: { env: { A: '2', C: '1', 'D"': '3' } },
      changes: [
        { path: 'env["A"]', before: '1', after: '2' },
        { path: 'env["B"]', before: '1' },
        { path: 'env["D\\""]', after: '3' },
      ],
    },
    {
      name: 'a list as a whole',
      before: { args: ['a', 'b'] },
      after: { args: ['b', 'a'] },
      changes: [{ path: 'args', before: ['a', 'b'], after: ['b', 'a'] }],
    },
    {
      name: 'a duration',
      before: { preStopDelay: durationFromMs(1_500) },
      after: { preStopDelay: durationFromMs(0) },
      changes: [{ path: 'pre_stop_delay', before: '1.500s', after: '0s' }],
    },
    {
      name: 'an enum by its name',
      before: { mode: Mode.GLOBAL },
      after: {},
      changes: [{ path: 'mode', before: 'GLOBAL' }],
    },
    {
      name: 'the cases of a oneof',
      before: { livenessProbe: { check: { case: 'tcp', value: {} } } },
      after: { livenessProbe: { check: { case: 'grpc', value: {} } } },
      changes: [
        { path: 'liveness_probe.tcp', before: {} },
        { path: 'liveness_probe.grpc', after: {} },
      ],
    },
  ] as const)('returns $name', ({ before, after, changes }) => {
    expect(diffSpecs(spec(before as object), spec(after as object))).toEqual(changes);
  });

  it('returns no difference exactly when the specs are equal', () => {
    fc.assert(
      fc.property(arbSpec, arbSpec, fc.boolean(), (a, other, same) => {
        const b = same ? updateSpec(a, create(WorkloadSpecSchema), undefined) : other;
        expect(diffSpecs(a, b).length === 0).toBe(isSame(a, b));
      }),
    );
  });

  it('returns the same differences with before and after exchanged when the arguments are exchanged', () => {
    fc.assert(
      fc.property(arbSpec, arbSpec, (a, b) => {
        const exchanged = diffSpecs(b, a).map(({ path, before, after }) => ({
          path,
          ...definedFields({ before: after, after: before }),
        }));
        expect(diffSpecs(a, b)).toEqual(exchanged);
      }),
      { numRuns: 50 },
    );
  });
});
