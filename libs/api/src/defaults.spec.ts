import { create, equals, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import {
  DEFAULTS,
  Disconnect_Mode as Mode,
  RestartPolicy_Policy as Restart,
  Rollout_OnFailure,
  Rollout_Promotion,
  Rollout_Strategy,
  WorkloadSpecSchema,
  WorkloadSpec_Mode,
  diffSpecs,
  namespaceOf,
  portNameOf,
  refuseUnsupported,
  withDefaults,
  type WorkloadSpec,
} from './index.js';
import { arbMessage } from './testing/arb-message.js';
import { aSpec } from './testing/index.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;
const spec = (init: Init): WorkloadSpec => create(WorkloadSpecSchema, init);
const full = (init: Init): WorkloadSpec => withDefaults(spec(init));

describe('withDefaults', () => {
  it('fills in the whole table of defaults', () => {
    expect(full({ command: ['serve'] })).toEqual(
      spec({
        command: ['serve'],
        replicas: 1,
        priority: 50,
        resources: { requests: { cpuMillis: 100, memoryBytes: 67_108_864n } },
        placement: {},
        restart: { policy: Restart.ALWAYS },
        terminationGracePeriod: durationFromMs(10_000),
        preStopDelay: durationFromMs(0),
        rollout: {
          strategy: Rollout_Strategy.ROLLING_UPDATE,
          maxSurge: 1,
          maxUnavailable: 0,
          minReadyDuration: durationFromMs(2_000),
          progressDeadline: durationFromMs(600_000),
          maxFailedNew: 3,
          onFailure: Rollout_OnFailure.PAUSE,
          pauseDuration: durationFromMs(0),
          promotion: Rollout_Promotion.AUTO,
          steps: [],
        },
        disconnect: {
          mode: Mode.AVAILABLE,
          lostAfter: durationFromMs(0),
          stopAfter: durationFromMs(10_000),
        },
        mode: WorkloadSpec_Mode.REPLICATED,
      }),
    );
  });

  it.each<{ name: string; given: Init; shows: object }>([
    {
      name: 'explicit zeros stay',
      given: {
        replicas: 0,
        priority: 0,
        rollout: { maxSurge: 0, minReadyDuration: durationFromMs(0) },
      },
      shows: {
        replicas: 0,
        priority: 0,
        rollout: { maxSurge: 0, minReadyDuration: { seconds: 0n } },
      },
    },
    {
      name: 'an explicit request of nothing stays',
      given: { resources: { requests: { cpuMillis: 0, memoryBytes: 0n } } },
      shows: { resources: { requests: { cpuMillis: 0, memoryBytes: 0n } } },
    },
    {
      name: 'one request leaves the default of the other',
      given: { resources: { requests: { cpuMillis: 7 } } },
      shows: { resources: { requests: { cpuMillis: 7, memoryBytes: 67_108_864n } } },
    },
    {
      name: 'a limit below a default request is the request',
      given: { resources: { limits: { cpuMillis: 50, memoryBytes: 16n << 20n } } },
      shows: { resources: { requests: { cpuMillis: 50, memoryBytes: 16n << 20n } } },
    },
    {
      name: 'a limit above a default request leaves the default',
      given: { resources: { limits: { cpuMillis: 101, memoryBytes: 65n << 20n } } },
      shows: { resources: { requests: { cpuMillis: 100, memoryBytes: 67_108_864n } } },
    },
    {
      name: 'a limit of 0, which is none, leaves the default request',
      given: { resources: { limits: { cpuMillis: 0, memoryBytes: 0n } } },
      shows: { resources: { requests: { cpuMillis: 100, memoryBytes: 67_108_864n } } },
    },
    {
      name: 'a limit leaves the given request',
      given: {
        resources: {
          requests: { cpuMillis: 7, memoryBytes: 0n },
          limits: { cpuMillis: 50, memoryBytes: 16n },
        },
      },
      shows: { resources: { requests: { cpuMillis: 7, memoryBytes: 0n } } },
    },
    {
      name: 'ports bring a pre-stop delay',
      given: { ports: [{ containerPort: 80 }] },
      shows: { preStopDelay: { seconds: 1n, nanos: 0 }, ports: [{ name: 'port-80' }] },
    },
    {
      name: 'an explicit pre-stop delay stays',
      given: { ports: [{ containerPort: 80, name: 'http' }], preStopDelay: durationFromMs(0) },
      shows: { preStopDelay: { seconds: 0n }, ports: [{ name: 'http' }] },
    },
    {
      name: 'ON_FAILURE retries three times',
      given: { restart: { policy: Restart.ON_FAILURE } },
      shows: { restart: { maxRetries: 3 } },
    },
    {
      name: 'ON_FAILURE without retries stays',
      given: { restart: { policy: Restart.ON_FAILURE, maxRetries: 0 } },
      shows: { restart: { maxRetries: 0 } },
    },
    {
      name: 'exclusive replicas are given twice the time to stop',
      given: { disconnect: { mode: Mode.EXCLUSIVE, stopAfter: durationFromMs(4_000) } },
      shows: { disconnect: { lostAfter: { seconds: 8n }, stopAfter: { seconds: 4n } } },
    },
    {
      name: 'a spread differs by one',
      given: { placement: { spread: { topology: 'zone' } } },
      shows: { placement: { spread: { maxSkew: 1 } } },
    },
    {
      name: 'a workload term is about the node',
      given: {
        placement: { antiAffinity: { workloads: [{ topology: '' }, { topology: 'zone' }] } },
      },
      shows: {
        placement: { antiAffinity: { workloads: [{ topology: 'node' }, { topology: 'zone' }] } },
      },
    },
  ])('$name', ({ given, shows }) => {
    expect(full(given)).toMatchObject(shows);
  });

  it.each([Restart.ALWAYS, Restart.NEVER])('policy %i has no limit of retries', (policy) => {
    expect(full({ restart: { policy } }).restart?.maxRetries).toBeUndefined();
  });

  it('leaves min_available alone: its default depends on the count', () => {
    expect(full({ replicas: 5 }).rollout?.minAvailable).toBeUndefined();
    expect(full({ replicas: 5, rollout: { minAvailable: 0 } }).rollout?.minAvailable).toBe(0);
  });

  it('changes nothing that was said, twice as much as once, and not the spec itself', () => {
    fc.assert(
      fc.property(arbMessage(WorkloadSpecSchema), (given) => {
        const before = structuredClone(given);
        const once = withDefaults(given);
        expect(given).toEqual(before);
        expect(equals(WorkloadSpecSchema, withDefaults(once), once)).toBe(true);
        const overwritten = diffSpecs(given, once).filter(
          ({ path, before: said }) => said !== undefined && !isFilledList(path),
        );
        expect(overwritten).toEqual([]);
      }),
    );
  });

  it('gives what is never refused', () => {
    expect(() => refuseUnsupported(withDefaults(aSpec()))).not.toThrow();
  });
});

/**
 * Lists are compared as a whole: an unnamed port is filled in within one, as are topologies and a
 * skew of 0 that is no value.
 */
function isFilledList(path: string): boolean {
  return path === 'ports' || path.endsWith('affinity.workloads');
}

describe('small rules', () => {
  it('names what was not named', () => {
    expect([namespaceOf({ namespace: '' }), namespaceOf({ namespace: 'shop' })]).toEqual([
      DEFAULTS.namespace,
      'shop',
    ]);
    expect([
      portNameOf({ name: '', containerPort: 53 }),
      portNameOf({ name: 'dns', containerPort: 53 }),
    ]).toEqual(['port-53', 'dns']);
  });
});
