import { equals, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Disconnect_Mode as Mode, WorkloadSpecSchema, toTemplate, updateSpec } from '../index.js';
import { aSpec, listSpecLeaves, type SpecLeaf } from '../testing/index.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;

describe('toTemplate', () => {
  it('returns a spec with defaults and without replica count, rollout and disconnect', () => {
    const template = toTemplate(
      aSpec({ replicas: 3, rollout: { maxSurge: 2 }, disconnect: { mode: Mode.EXCLUSIVE } }),
    );
    const { replicas, rollout, disconnect } = template;
    expect({ replicas, rollout, disconnect }).toEqual({
      replicas: undefined,
      rollout: undefined,
      disconnect: undefined,
    });
    expect(template).toMatchObject({
      command: ['serve'],
      priority: 50,
      terminationGracePeriod: { seconds: 10n },
    });
  });

  it.each<{ name: string; one: Init; other: Init; result: 'equal' | 'different' }>([
    { name: 'the replica count', one: { replicas: 1 }, other: { replicas: 9 }, result: 'equal' },
    {
      name: 'the identity',
      one: { image: 'a' },
      other: { image: 'a', identity: {} },
      result: 'different',
    },
    { name: 'the rollout', one: {}, other: { rollout: { maxSurge: 3 } }, result: 'equal' },
    {
      name: 'disconnect',
      one: {},
      other: { disconnect: { mode: Mode.EXCLUSIVE } },
      result: 'equal',
    },
    {
      name: 'defaults that one of them sets explicitly',
      one: {},
      other: {
        priority: 50,
        terminationGracePeriod: durationFromMs(10_000),
        restart: {},
        placement: {},
        resources: { requests: { cpuMillis: 100 } },
      },
      result: 'equal',
    },
    {
      name: 'an explicit default name of a port',
      one: { ports: [{ containerPort: 80 }] },
      other: { ports: [{ containerPort: 80, name: 'port-80' }] },
      result: 'equal',
    },
    {
      name: 'an explicit default skew of a spread',
      one: { placement: { spread: { topology: 'zone' } } },
      other: { placement: { spread: { topology: 'zone', maxSkew: 1 } } },
      result: 'equal',
    },
    {
      name: 'empty container settings',
      one: { image: 'a' },
      other: { image: 'a', security: {}, network: {}, imagePull: {} },
      result: 'equal',
    },
    {
      name: 'explicit default security of a container',
      one: { image: 'a' },
      other: { image: 'a', security: { noNewPrivileges: true, seccompProfile: 'RuntimeDefault' } },
      result: 'equal',
    },
    {
      name: 'the explicit default of no_new_privileges of a privileged container',
      one: { image: 'a', security: { privileged: true } },
      other: { image: 'a', security: { privileged: true, noNewPrivileges: false } },
      result: 'equal',
    },
    {
      name: 'no_new_privileges false',
      one: { image: 'a', security: {} },
      other: { image: 'a', security: { noNewPrivileges: false } },
      result: 'different',
    },
    { name: 'the environment', one: {}, other: { env: { A: '1' } }, result: 'different' },
    { name: 'labels', one: {}, other: { labels: { a: 'b' } }, result: 'different' },
    { name: 'priority', one: {}, other: { priority: 51 }, result: 'different' },
    {
      name: 'a restart time',
      one: {},
      other: { restartedAt: { seconds: 1n } },
      result: 'different',
    },
  ])('returns $result templates when specs differ by $name', ({ one, other, result }) => {
    expect(equals(WorkloadSpecSchema, toTemplate(aSpec(one)), toTemplate(aSpec(other)))).toBe(
      result === 'equal',
    );
  });

  const plain = aSpec({ image: 'nginx' });
  const isOfTemplate = ({ path }: SpecLeaf): boolean =>
    !/^(replicas|rollout|disconnect|expose)\b/.test(path);

  it.each(listSpecLeaves().filter((leaf) => isOfTemplate(leaf)))(
    'returns another template for another value of $path',
    ({ path, spec }) => {
      const changed = updateSpec(plain, spec, undefined);
      if (path === 'security.no_new_privileges') changed.security!.noNewPrivileges = false;
      expect(equals(WorkloadSpecSchema, toTemplate(plain), toTemplate(changed))).toBe(false);
    },
  );
});
