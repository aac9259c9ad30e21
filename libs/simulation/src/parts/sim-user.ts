import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { RestartPolicy_Policy as Restart, type CoordinatorClient, type Workload, type WorkloadSpecSchema } from '@cloudless/api';
import type { Clock } from '@cloudless/base';
import { behaviourCommand } from '@cloudless/runtime/testing';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Ledger } from '../checks/ledger.js';
import type { SimCoordinator } from './sim-coordinator.js';
import type { SimLink } from './sim-link.js';
import type { SimRandom } from './sim-random.js';

/** Needs of a {@link SimUser}. */
export interface SimUserOptions {
  readonly name: string;
  readonly time: Clock;
  readonly random: SimRandom;
  readonly link: SimLink;
  readonly coordinator: () => SimCoordinator | undefined;
  readonly ledger: Ledger;
  readonly nodeIds: () => readonly string[];
  readonly trace: (what: string) => void;
  readonly violation: (text: string) => void;
  /** Whether the coordinator's disk is full now, or was a moment ago. */
  readonly diskIsFull: () => boolean;
}

type Spec = MessageInitShape<typeof WorkloadSpecSchema>;
type Call = (client: CoordinatorClient, requestId: string) => Promise<Workload | undefined>;

const WORKLOADS = ['one', 'two', 'three'] as const;
/** An answer that takes longer will not come. */
const DEADLINE_MS = 5_000;
const RETRY_MS = [50, 1_500] as const;
const PAUSE_MS = [10, 1_000] as const;
/** What no user can be to blame for. */
const FAULTS: readonly Code[] = [Code.Internal, Code.Unknown, Code.DataLoss, Code.Unimplemented];
/** The outcome is not known, or the same may work later. */
const AGAIN: readonly Code[] = [Code.Unavailable, Code.DeadlineExceeded, Code.ResourceExhausted, Code.Aborted];

/** Someone who asks for random things, and asks again with the same request id until the outcome is known. */
export class SimUser {
  private requests = 0;
  private isLeaving = false;
  private isBusy = false;

  constructor(private readonly options: SimUserOptions) {}

  /** Whether nothing is asked for any more. */
  get isDone(): boolean {
    return this.isLeaving && !this.isBusy;
  }

  /** Asks for things until told to leave. */
  start(): void {
    const { time, random } = this.options;
    time.setTimer(random.between(...PAUSE_MS), () => {
      if (this.isLeaving) return;
      this.isBusy = true;
      void this.act().finally(() => {
        this.isBusy = false;
        this.start();
      });
    });
  }

  /** Asks for nothing new; what was asked for is brought to its end. */
  leave(): void {
    this.isLeaving = true;
  }

  /** Carries a call out until its outcome is known. */
  async perform(what: string, call: Call, isFinal: (code: Code) => boolean = () => true): Promise<void> {
    const { trace, random, ledger, violation, diskIsFull } = this.options;
    const requestId = `${this.options.name}-${(this.requests += 1)}`;
    for (let attempt = 1; ; attempt += 1) {
      try {
        const workload = await this.attempt(call, requestId);
        trace(`${what}: done${attempt === 1 ? '' : ` (attempt ${attempt})`}`);
        if (workload !== undefined) ledger.told(what.split(' ')[0] ?? what, requestId, workload);
        return;
      } catch (reason) {
        const { code, rawMessage } = ConnectError.from(reason);
        if (FAULTS.includes(code)) violation(`${what} failed by a fault of ours: ${String(reason)}`);
        if (code === Code.ResourceExhausted && !diskIsFull()) violation(`${what} was refused without a full disk: ${rawMessage}`);
        if (!AGAIN.includes(code) && isFinal(code)) return trace(`${what}: refused: ${rawMessage}`);
      }
      await this.wait(random.between(...RETRY_MS));
    }
  }

  private act(): Promise<void> {
    const { random, ledger } = this.options;
    const isFirst = this.requests === 0;
    const name = random.pick(WORKLOADS);
    const nodeId = random.pick(this.options.nodeIds()) ?? '';
    const act = isFirst
      ? 'create'
      : random.weighted({ create: 3, scale: 3, update: 3, delete: 1, drain: 1, cordon: 0.5, uncordon: 2, read: 0.3 });
    switch (act) {
      case 'create': {
        const spec = this.spec();
        const create: Call = (client, requestId) => client.createWorkload({ name, spec, requestId });
        return this.perform(`create ${name} with ${spec.replicas}`, create);
      }
      case 'scale': {
        const replicas = random.whole(0, 6);
        return this.perform(`scale ${name} to ${replicas}`, (client, requestId) =>
          client.scaleWorkload({ name, replicas, requestId }),
        );
      }
      case 'update': {
        const spec = this.change();
        return this.perform(`update ${name}`, (client, requestId) => client.updateWorkload({ name, spec, requestId }));
      }
      case 'delete':
        ledger.deletionAsked(name);
        return this.perform(`delete ${name}`, (client, requestId) => client.deleteWorkload({ name, requestId }));
      case 'drain':
        return this.perform(`drain ${nodeId}`, (client) => client.drainNode({ nodeId }).then(() => undefined));
      case 'cordon':
        return this.perform(`cordon ${nodeId}`, (client) => client.cordonNode({ nodeId }).then(() => undefined));
      case 'uncordon':
        return this.perform(`uncordon ${nodeId}`, (client) => client.uncordonNode({ nodeId }).then(() => undefined));
      case 'read':
        return this.perform('list', (client) => client.listWorkloads({}).then(() => undefined));
    }
  }

  private spec(): Spec & { readonly replicas: number } {
    const { random } = this.options;
    const replicas = random.whole(0, 6);
    const isStubborn = random.chance(0.15);
    return {
      // Most end when they are asked to, some only when they are killed: soon, or a rollout takes minutes.
      command: isStubborn ? [...behaviourCommand([{ step: 'ignoreTerm' }, { step: 'hold' }])] : ['serve'],
      replicas,
      ports: random.chance(0.5) ? [{ name: 'http', containerPort: 8080 }] : [],
      resources: { requests: { cpuMillis: random.pick([50, 100, 200]) } },
      rollout: this.rollout(replicas),
      restart: this.restart(),
      ...(isStubborn || random.chance(0.3) ? { terminationGracePeriod: durationFromMs(random.pick([0, 500, 2_000])) } : {}),
      ...(random.chance(0.3) ? { preStopDelay: durationFromMs(random.pick([0, 200, 1_000])) } : {}),
    };
  }

  private change(): Spec {
    const { random } = this.options;
    const replicas = random.whole(0, 6);
    switch (random.weighted({ args: 5, rollout: 2, both: 2, resources: 1 })) {
      case 'args':
        return { args: [String(random.whole(1, 1_000))] };
      case 'rollout':
        return { rollout: this.rollout(replicas) };
      case 'both':
        return { args: [String(random.whole(1, 1_000))], replicas };
      case 'resources':
        return { resources: { requests: { cpuMillis: random.pick([50, 150]) } } };
    }
  }

  private rollout(replicas: number): NonNullable<Spec['rollout']> {
    const { random } = this.options;
    const limits = random.pick([
      {},
      {},
      { minAvailable: replicas },
      { maxUnavailable: 2 },
      { maxSurge: 3 },
      { maxSurge: 0, maxUnavailable: 1 },
    ] as const);
    return { ...limits, ...(random.chance(0.7) ? { minReadyDuration: durationFromMs(random.pick([0, 300])) } : {}) };
  }

  private restart(): NonNullable<Spec['restart']> {
    const { random } = this.options;
    const kind = random.weighted({ always: 8, retries: 2, onFailure: 1, never: 1 });
    if (kind === 'always') return { policy: Restart.ALWAYS };
    if (kind === 'retries') return { policy: Restart.ALWAYS, maxRetries: random.whole(0, 3) };
    return { policy: kind === 'never' ? Restart.NEVER : Restart.ON_FAILURE };
  }

  /** One try over the network: what is lost on the way, or dies with the coordinator, is not known. */
  private attempt(call: Call, requestId: string): Promise<Workload | undefined> {
    const { link, time, random, coordinator } = this.options;
    const lost = random.chance(link.faults.requestLoss);
    const unheard = random.chance(link.faults.replyLoss);
    return new Promise((resolve, reject) => {
      const timer = time.setTimer(DEADLINE_MS, () => reject(new ConnectError('no answer in time', Code.DeadlineExceeded)));
      const answer = (give: () => void): void => {
        if (unheard) return;
        link.pass('down', () => {
          timer.cancel();
          give();
        });
      };
      link.pass('up', () => {
        const there = coordinator();
        if (lost) return;
        if (there === undefined) return answer(() => reject(new ConnectError('connection refused', Code.Unavailable)));
        there.process.onDeath(() => answer(() => reject(new ConnectError('connection reset', Code.Unavailable))));
        there.process.run(() => {
          call(there.client, requestId).then(
            (value) => answer(() => resolve(value)),
            (reason: unknown) => answer(() => reject(ConnectError.from(reason))),
          );
        });
      });
    });
  }

  private wait(durationMs: number): Promise<void> {
    return new Promise((resolve) => this.options.time.setTimer(durationMs, resolve));
  }
}
