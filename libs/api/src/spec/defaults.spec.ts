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
  resolveNamespace,
  resolvePortName,
  checkSupported,
  withDefaults,
  type WorkloadSpec,
} from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';
import { aSpec } from '../testing/index.js';

type Init = MessageInitShape<typeof WorkloadSpecSchema>;
const spec = (init: Init): WorkloadSpec => create(WorkloadSpecSchema, init);
const specWithDefaults = (init: Init): WorkloadSpec => withDefaults(spec(init));

describe('withDefaults', () => {
  it('sets every default in a spec with a command only', () => {
    expect(specWithDefaults({ command: ['serve'] })).toEqual(
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

  it.each<{ name: string; given: Init; expected: object }>([
    {
      name: 'sets no max_failed_new together with a percentage',
      given: { command: ['a'], rollout: { maxFailedNewPercent: 10 } },
      expected: { rollout: { maxFailedNewPercent: 10 } },
    },
    {
      name: 'keeps explicit zeros',
      given: {
        replicas: 0,
        priority: 0,
        rollout: { maxSurge: 0, minReadyDuration: durationFromMs(0) },
      },
      expected: {
        replicas: 0,
        priority: 0,
        rollout: { maxSurge: 0, minReadyDuration: { seconds: 0n } },
      },
    },
    {
      name: 'keeps an explicit request of 0',
      given: { resources: { requests: { cpuMillis: 0, memoryBytes: 0n } } },
      expected: { resources: { requests: { cpuMillis: 0, memoryBytes: 0n } } },
    },
    {
      name: 'sets the default of one request when only the other is given',
      given: { resources: { requests: { cpuMillis: 7 } } },
      expected: { resources: { requests: { cpuMillis: 7, memoryBytes: 67_108_864n } } },
    },
    {
      name: 'uses a limit below the default request as request',
      given: { resources: { limits: { cpuMillis: 50, memoryBytes: 16n << 20n } } },
      expected: { resources: { requests: { cpuMillis: 50, memoryBytes: 16n << 20n } } },
    },
    {
      name: 'keeps the default request below a limit',
      given: { resources: { limits: { cpuMillis: 101, memoryBytes: 65n << 20n } } },
      expected: { resources: { requests: { cpuMillis: 100, memoryBytes: 67_108_864n } } },
    },
    {
      name: 'keeps the default request with a limit of 0, which means no limit',
      given: { resources: { limits: { cpuMillis: 0, memoryBytes: 0n } } },
      expected: { resources: { requests: { cpuMillis: 100, memoryBytes: 67_108_864n } } },
    },
    {
      name: 'keeps a given request below a limit',
      given: {
        resources: {
          requests: { cpuMillis: 7, memoryBytes: 0n },
          limits: { cpuMillis: 50, memoryBytes: 16n },
        },
      },
      expected: { resources: { requests: { cpuMillis: 7, memoryBytes: 0n } } },
    },
    {
      name: 'sets a pre-stop delay when ports are declared',
      given: { ports: [{ containerPort: 80 }] },
      expected: { preStopDelay: { seconds: 1n, nanos: 0 }, ports: [{ name: 'port-80' }] },
    },
    {
      name: 'keeps an explicit pre-stop delay',
      given: { ports: [{ containerPort: 80, name: 'http' }], preStopDelay: durationFromMs(0) },
      expected: { preStopDelay: { seconds: 0n }, ports: [{ name: 'http' }] },
    },
    {
      name: 'sets three retries for ON_FAILURE',
      given: { restart: { policy: Restart.ON_FAILURE } },
      expected: { restart: { maxRetries: 3 } },
    },
    {
      name: 'keeps ON_FAILURE with 0 retries',
      given: { restart: { policy: Restart.ON_FAILURE, maxRetries: 0 } },
      expected: { restart: { maxRetries: 0 } },
    },
    {
      name: 'sets lost_after to twice stop_after for EXCLUSIVE',
      given: { disconnect: { mode: Mode.EXCLUSIVE, stopAfter: durationFromMs(4_000) } },
      expected: { disconnect: { lostAfter: { seconds: 8n }, stopAfter: { seconds: 4n } } },
    },
    {
      name: 'sets max_skew to 1',
      given: { placement: { spread: { topology: 'zone' } } },
      expected: { placement: { spread: { maxSkew: 1 } } },
    },
    {
      name: 'sets the topology of a workload term to node',
      given: {
        placement: { antiAffinity: { workloads: [{ topology: '' }, { topology: 'zone' }] } },
      },
      expected: {
        placement: { antiAffinity: { workloads: [{ topology: 'node' }, { topology: 'zone' }] } },
      },
    },
  ])('$name', ({ given, expected }) => {
    expect(specWithDefaults(given)).toMatchObject(expected);
  });

  it.each([Restart.ALWAYS, Restart.NEVER])(
    'sets no max_retries for the restart policy with number %i',
    (policy) => {
      expect(specWithDefaults({ restart: { policy } }).restart?.maxRetries).toBeUndefined();
    },
  );

  it('sets no max_failed_new together with max_failed_new_percent', () => {
    const rollout = { maxFailedNewPercent: 10 };
    expect(
      withDefaults(create(WorkloadSpecSchema, { rollout })).rollout?.maxFailedNew,
    ).toBeUndefined();
  });

  it('leaves min_available absent, because its default depends on the replica count', () => {
    expect(specWithDefaults({ replicas: 5 }).rollout?.minAvailable).toBeUndefined();
    expect(
      specWithDefaults({ replicas: 5, rollout: { minAvailable: 0 } }).rollout?.minAvailable,
    ).toBe(0);
  });

  it('overrides no value, is idempotent, and does not change its argument', () => {
    fc.assert(
      fc.property(arbitraryMessage(WorkloadSpecSchema), (given) => {
        const before = structuredClone(given);
        const once = withDefaults(given);
        expect(given).toEqual(before);
        expect(equals(WorkloadSpecSchema, withDefaults(once), once)).toBe(true);
        const overwritten = diffSpecs(given, once).filter(
          ({ path, before: value }) => value !== undefined && !isFilledList(path),
        );
        expect(overwritten).toEqual([]);
      }),
    );
  });

  it('returns a spec that checkSupported accepts', () => {
    expect(() => checkSupported(withDefaults(aSpec()))).not.toThrow();
  });
});

/**
 * Returns true for lists in which defaults are set. `diffSpecs` compares lists as a whole, so a
 * default within an item, such as the name of a port, looks like another value of the list.
 */
function isFilledList(path: string): boolean {
  return ['ports', 'secrets', 'configs'].includes(path) || path.endsWith('affinity.workloads');
}

describe('resolveNamespace and resolvePortName', () => {
  it('return the default for an empty field, and the value of a set field', () => {
    expect([resolveNamespace({ namespace: '' }), resolveNamespace({ namespace: 'shop' })]).toEqual([
      DEFAULTS.namespace,
      'shop',
    ]);
    expect([
      resolvePortName({ name: '', containerPort: 53 }),
      resolvePortName({ name: 'dns', containerPort: 53 }),
    ]).toEqual(['port-53', 'dns']);
  });
});
