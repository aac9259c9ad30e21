import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, type Duration } from '@bufbuild/protobuf/wkt';
import {
  RestartPolicy_Policy as Restart,
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  type RolloutSchema,
  type WorkloadSpecSchema,
} from '@cloudless/api';
import { toBehaviourCommand } from '@cloudless/runtime/testing';
import type { SimRandom } from './sim-random.js';
import { MISBEHAVIOUR_ANNOTATION, type Misbehaviour } from './sim-replicas.js';

type Spec = MessageInitShape<typeof WorkloadSpecSchema>;
/** Init shape with known fields, because specs are assembled from parts. */
type RolloutInit = Exclude<MessageInitShape<typeof RolloutSchema>, { readonly $typeName: string }>;

/** An update of a workload. */
export interface Change {
  readonly spec: Spec;
  readonly updateMask?: { readonly paths: string[] };
}

/** Random specs and updates. */
export class SimSpecs {
  constructor(private readonly random: SimRandom) {}

  /** Returns a complete spec. */
  spec(): Spec & { readonly replicas: number } {
    const { random } = this;
    const replicas = random.wholeNumber(0, 6);
    const ignoresTerm = random.chance(0.15);
    return {
      // Some programs end only when they are killed. Their grace period is short, otherwise a
      // rollout would take minutes.
      command: ignoresTerm
        ? [...toBehaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])]
        : ['serve'],
      replicas,
      ports: random.chance(0.5) ? [{ name: 'http', containerPort: 8080 }] : [],
      resources: { requests: { cpuMillis: random.pick([50, 100, 200]) } },
      rollout: this.rollout(replicas),
      restart: this.restart(),
      ...(ignoresTerm || random.chance(0.3)
        ? { terminationGracePeriod: durationFromMs(random.pick([0, 500, 2_000])) }
        : {}),
      ...(random.chance(0.3) ? { preStopDelay: durationFromMs(random.pick([0, 200, 1_000])) } : {}),
    };
  }

  /** Returns an update and the fields that it replaces. */
  change(): Change {
    const { random } = this;
    const replicas = random.wholeNumber(0, 6);
    switch (random.pickWeighted({ args: 4, misbehaviour: 3, rollout: 2, both: 2, resources: 1 })) {
      case 'args':
        return { spec: { args: [String(random.wholeNumber(1, 1_000))] } };
      case 'misbehaviour': {
        const misbehaviour =
          random.pick(['crashes', 'deaf', 'fragile', ''] satisfies (Misbehaviour | '')[]) ?? '';
        return {
          spec: {
            annotations: { [MISBEHAVIOUR_ANNOTATION]: misbehaviour },
            args: [String(random.wholeNumber(1, 1_000))],
          },
        };
      }
      case 'rollout':
        return { spec: { rollout: this.rollout(replicas) }, updateMask: { paths: ['rollout'] } };
      case 'both':
        return { spec: { args: [String(random.wholeNumber(1, 1_000))], replicas } };
      case 'resources':
        return { spec: { resources: { requests: { cpuMillis: random.pick([50, 150]) } } } };
    }
  }

  /** Most durations are short, because every rollout must end within the duration of a world. */
  private rollout(replicas: number): RolloutInit {
    const { random } = this;
    const strategy = random.pickWeighted({ rolling: 6, canary: 3, blueGreen: 3, recreate: 1.5 });
    return {
      ...(strategy === 'blueGreen'
        ? this.blueGreen()
        : strategy === 'recreate'
          ? { strategy: Strategy.RECREATE }
          : {}),
      ...(strategy === 'canary' ? { steps: this.steps() } : {}),
      ...this.limits(replicas, strategy === 'rolling' || strategy === 'canary'),
      ...(random.chance(0.7) ? { minReadyDuration: durationFromMs(random.pick([0, 300])) } : {}),
      progressDeadline: durationFromMs(random.pick([1_500, 4_000, 8_000])),
      ...(random.chance(0.6) ? { maxFailedNew: random.wholeNumber(0, 3) } : {}),
      ...(random.chance(0.4) ? { onFailure: OnFailure.ROLLBACK } : {}),
    };
  }

  private limits(replicas: number, mayChooseSurge: boolean): RolloutInit {
    const { random } = this;
    const commonLimits = [{}, {}, { minAvailable: replicas }, { maxUnavailable: 2 }] as const;
    return mayChooseSurge
      ? random.pick([
          ...commonLimits,
          { maxSurge: 3 },
          { maxSurge: 0, maxUnavailable: 1 },
          { maxSurge: 0, minAvailable: 2 },
        ] as const)
      : random.pick(commonLimits);
  }

  private blueGreen(): RolloutInit {
    const { random } = this;
    return {
      strategy: Strategy.BLUE_GREEN,
      ...(random.chance(0.4) ? { promotion: Promotion.MANUAL } : {}),
      ...(random.chance(0.5) ? { pauseDuration: durationFromMs(random.pick([500, 3_000])) } : {}),
    };
  }

  private steps(): NonNullable<RolloutInit['steps']> {
    const { random } = this;
    const sizes = random.pick([
      [{ replicas: 1 }],
      [{ replicas: 1 }, { replicas: 3 }],
      [{ percent: 20 }, { percent: 60 }],
    ] as const);
    return (sizes ?? []).map((size) => ({
      ...size,
      ...(random.chance(0.4)
        ? { promotion: Promotion.MANUAL }
        : { wait: durationFromMs(random.pick([0, 300, 1_500])) }),
    }));
  }

  /**
   * Returns the options of a drain: mostly without a deadline, sometimes with one, and then
   * sometimes forced.
   */
  drain(): { readonly deadline?: Duration; readonly force?: boolean } {
    const { random } = this;
    if (random.chance(0.6)) return {};
    const deadline = durationFromMs(random.pick([300, 2_000, 5_000]));
    return random.pick([
      { deadline },
      { deadline },
      { deadline, force: true },
      { deadline, force: true },
      { force: true },
    ] as const);
  }

  private restart(): NonNullable<Spec['restart']> {
    const { random } = this;
    const kind = random.pickWeighted({ always: 8, retries: 2, onFailure: 1, never: 1 });
    if (kind === 'always') return { policy: Restart.ALWAYS };
    if (kind === 'retries') return { policy: Restart.ALWAYS, maxRetries: random.wholeNumber(0, 3) };
    return { policy: kind === 'never' ? Restart.NEVER : Restart.ON_FAILURE };
  }
}
