import { equals, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Disconnect_Mode as Mode, WorkloadSpecSchema, toTemplate, updateSpec } from '../index.js';
import { aSpec, listSpecLeaves, type SpecLeaf } from '../testing/index.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;

describe('toTemplate', () => {
  it('returns the spec with defaults and without replica count, rollout and disconnect', () => {
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

  it.each<{ name: string; one: Init; other: Init; same: boolean }>([
    { name: 'scaling', one: { replicas: 1 }, other: { replicas: 9 }, same: true },
    { name: 'the rollout', one: {}, other: { rollout: { maxSurge: 3 } }, same: true },
    { name: 'disconnect', one: {}, other: { disconnect: { mode: Mode.EXCLUSIVE } }, same: true },
    {
      name: 'a default that is written out',
      one: {},
      other: {
        priority: 50,
        terminationGracePeriod: durationFromMs(10_000),
        restart: {},
        placement: {},
        resources: { requests: { cpuMillis: 100 } },
      },
      same: true,
    },
    {
      name: 'the name a port has anyway',
      one: { ports: [{ containerPort: 80 }] },
      other: { ports: [{ containerPort: 80, name: 'port-80' }] },
      same: true,
    },
    {
      name: 'the skew a spread has anyway',
      one: { placement: { spread: { topology: 'zone' } } },
      other: { placement: { spread: { topology: 'zone', maxSkew: 1 } } },
      same: true,
    },
    {
      name: 'an empty message of containers',
      one: { image: 'a' },
      other: { image: 'a', security: {}, network: {}, imagePull: {} },
      same: true,
    },
    {
      name: 'the security that a container has anyway',
      one: { image: 'a' },
      other: { image: 'a', security: { noNewPrivileges: true, seccompProfile: 'RuntimeDefault' } },
      same: true,
    },
    {
      name: 'the new privileges that a privileged container has anyway',
      one: { image: 'a', security: { privileged: true } },
      other: { image: 'a', security: { privileged: true, noNewPrivileges: false } },
      same: true,
    },
    {
      name: 'new privileges',
      one: { image: 'a', security: {} },
      other: { image: 'a', security: { noNewPrivileges: false } },
      same: false,
    },
    { name: 'the environment', one: {}, other: { env: { A: '1' } }, same: false },
    { name: 'labels', one: {}, other: { labels: { a: 'b' } }, same: false },
    { name: 'priority', one: {}, other: { priority: 51 }, same: false },
    { name: 'a restart', one: {}, other: { restartedAt: { seconds: 1n } }, same: false },
  ])('returns equal templates ($same) for $name', ({ one, other, same }) => {
    expect(equals(WorkloadSpecSchema, toTemplate(aSpec(one)), toTemplate(aSpec(other)))).toBe(same);
  });

  const plain = aSpec({ image: 'nginx' });
  const isOfTemplate = ({ path }: SpecLeaf): boolean =>
    !/^(replicas|rollout|disconnect)\b/.test(path);

  it.each(listSpecLeaves().filter((leaf) => isOfTemplate(leaf)))(
    'another $path makes another version',
    ({ path, spec }) => {
      const changed = updateSpec(plain, spec, undefined);
      if (path === 'security.no_new_privileges') changed.security!.noNewPrivileges = false;
      expect(equals(WorkloadSpecSchema, toTemplate(plain), toTemplate(changed))).toBe(false);
    },
  );
});
