import { Code, ConnectError } from '@connectrpc/connect';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  Disconnect_Mode as DisconnectMode,
  readLeaderHint,
  type CoordinatorClient,
  type Workload,
  type WorkloadSpecSchema,
} from '@cloudless/api';
import type { Clock } from '@cloudless/base';
import type { AcknowledgementChecker } from '../checks/acknowledgement-checker.js';
import { toShown, type ApiHistory, type ApiOutput } from '../checks/api-history.js';
import type { ServingCoordinator } from './serving-coordinator.js';
import type { SimLink } from './sim-link.js';
import { SimServiceCalls } from './sim-service-calls.js';
import { SimSpecs } from './sim-specs.js';
import type { SimRandom } from './sim-random.js';

export interface SimUserOptions {
  readonly name: string;
  readonly time: Clock;
  readonly random: SimRandom;
  readonly link: SimLink;
  /** URLs of the coordinators; each attempt of a call picks one. */
  readonly addresses: readonly string[];
  /** Returns the coordinator that accepts calls at an address, if any. */
  readonly coordinator: (address: string) => ServingCoordinator | undefined;
  readonly ledger: AcknowledgementChecker;
  readonly history: ApiHistory;
  readonly nodeIds: () => readonly string[];
  /** True: one of the workloads uses a host port. */
  readonly hostPorts: boolean;
  /** True: coordinators that follow answer reads too, which are therefore linearizable. */
  readonly readsFollowers: boolean;
  /** True: some calls are about services. */
  readonly services: boolean;
  /** True: half of the created workloads have `disconnect.mode` EXCLUSIVE. */
  readonly exclusive: boolean;
  readonly trace: (text: string) => void;
  readonly reportViolation: (text: string) => void;
  /** Returns true while the coordinator's disk is full, or was full a moment ago. */
  readonly diskIsFull: () => boolean;
}

type Call = (
  client: CoordinatorClient,
  requestId: string,
  server: ServingCoordinator,
) => Promise<Workload | undefined>;

/** Share of the calls that are about services, in worlds with services. */
const SERVICE_SHARE = 0.3;
const WORKLOADS = ['one', 'two', 'three'] as const;
/** Workload that uses a host port in worlds with host ports. */
const WITH_HOST_PORT = 'three';
/**
 * Most replicas of the workload with a host port. With more replicas, the new set of a blue/green
 * rollout may not find enough nodes after machines were destroyed.
 */
const MAX_WITH_HOST_PORT = 2;
/** A response that takes longer counts as lost, milliseconds. */
const DEADLINE_MS = 5_000;
/** Shortest and longest pause before a call is repeated, milliseconds. */
const RETRY_MS = [50, 1_500] as const;
/** Shortest and longest pause between calls, milliseconds. */
const PAUSE_MS = [10, 1_000] as const;
/** Status codes that no user input may cause. */
const INTERNAL_CODES: readonly Code[] = [
  Code.Internal,
  Code.Unknown,
  Code.DataLoss,
  Code.Unimplemented,
];
/** Refusals that say something about the workload. */
const REFUSALS: Readonly<Partial<Record<Code, 'notFound' | 'exists'>>> = {
  [Code.NotFound]: 'notFound',
  [Code.AlreadyExists]: 'exists',
};
/** Status codes after which the outcome is unknown or a retry may succeed. */
const RETRYABLE_CODES: readonly Code[] = [
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.ResourceExhausted,
  Code.Aborted,
];

/**
 * A user who makes random calls and repeats each with the same request id until the outcome is
 * known.
 */
export class SimUser {
  private requests = 0;
  /** Address of the leader, when the last attempt was refused with it. */
  private leaderAddress: string | undefined;
  private isFinishing = false;
  private isBusy = false;

  private readonly specs: SimSpecs;
  private readonly serviceCalls: SimServiceCalls;

  constructor(private readonly options: SimUserOptions) {
    this.specs = new SimSpecs(options.random);
    this.serviceCalls = new SimServiceCalls(options.random, WORKLOADS);
  }

  /** True when no call is in progress and none will follow. */
  get isDone(): boolean {
    return this.isFinishing && !this.isBusy;
  }

  /** Makes calls until {@link finish}. */
  start(): void {
    const { time, random } = this.options;
    time.setTimer(random.between(...PAUSE_MS), () => {
      if (this.isFinishing) return;
      this.isBusy = true;
      void this.act().finally(() => {
        this.isBusy = false;
        this.start();
      });
    });
  }

  /** Starts no new calls; calls in progress are completed. */
  finish(): void {
    this.isFinishing = true;
  }

  /**
   * Repeats a call until its outcome is known.
   * @param description - Its first word names the call, for example `scale one to 3`.
   * @param isFinal - Returns false for codes after which the call is repeated. Default: every code
   *   that is not retryable ends the call.
   */
  perform(
    description: string,
    call: Call,
    isFinal: (code: Code) => boolean = () => true,
  ): Promise<void> {
    return this.options.history.record(description, () =>
      this.repeatUntilKnown(description, call, isFinal),
    );
  }

  /** Returns the answer; undefined for calls that are not about a workload. */
  private async repeatUntilKnown(
    description: string,
    call: Call,
    isFinal: (code: Code) => boolean,
  ): Promise<ApiOutput | undefined> {
    const { trace, random, ledger, reportViolation, diskIsFull } = this.options;
    const requestId = `${this.options.name}-${(this.requests += 1)}`;
    for (let attempt = 1; ; attempt += 1) {
      try {
        const workload = await this.attempt(call, requestId);
        trace(`${description}: done${attempt === 1 ? '' : ` (attempt ${attempt})`}`);
        if (workload === undefined) return undefined;
        const verb = description.split(' ')[0] ?? description;
        if (verb !== 'read') ledger.recordAcknowledgement(verb, requestId, workload);
        return toShown(workload);
      } catch (reason) {
        const { code, rawMessage } = ConnectError.from(reason);
        this.leaderAddress = readLeaderHint(reason)?.address;
        if (INTERNAL_CODES.includes(code))
          reportViolation(`${description} failed with an internal error: ${String(reason)}`);
        // Stays so for the hour of the hold time, longer than a world.
        if (code === Code.ResourceExhausted && rawMessage.includes('virtual addresses'))
          return { kind: 'refused' };
        if (code === Code.ResourceExhausted && !diskIsFull())
          reportViolation(`${description} was refused without a full disk: ${rawMessage}`);
        if (!RETRYABLE_CODES.includes(code) && isFinal(code)) {
          trace(`${description}: refused: ${rawMessage}`);
          return { kind: REFUSALS[code] ?? 'refused' };
        }
      }
      await this.wait(random.between(...RETRY_MS));
    }
  }

  private act(): Promise<void> {
    const { random, ledger, addresses } = this.options;
    const isFirst = this.requests === 0;
    if (!isFirst && this.options.services && random.chance(SERVICE_SHARE))
      return this.actOnService();
    const name = random.pick(WORKLOADS);
    const nodeId = random.pick(this.options.nodeIds()) ?? '';
    const action = isFirst
      ? 'create'
      : random.pickWeighted({
          ...{
            create: 2,
            scale: 2,
            update: 4.5,
            delete: 0.6,
            drain: 1,
            cordon: 0.5,
            uncordon: 2,
            read: addresses.length > 1 ? 3 : 0.3,
          },
          ...{ pause: 0.6, resume: 1, promote: 1.5, undo: 1, restart: 0.4 },
        });
    switch (action) {
      case 'create': {
        const drawn = this.usesHostPort(name) ? withHostPort(this.specs.spec()) : this.specs.spec();
        const mayBeExclusive = this.options.exclusive && !this.usesHostPort(name);
        const wanted = mayBeExclusive && random.chance(0.5) ? asExclusive(drawn) : drawn;
        const spec = this.options.services ? this.withPorts(wanted) : wanted;
        const create: Call = (client, requestId) =>
          client.createWorkload({ name, spec, requestId });
        return this.perform(`create ${name} with ${spec.replicas}`, create);
      }
      case 'scale': {
        const replicas = this.maxReplicasOf(name, random.wholeNumber(0, 6));
        return this.perform(`scale ${name} to ${replicas}`, (client, requestId) =>
          client.scaleWorkload({ name, replicas, requestId }),
        );
      }
      case 'update': {
        const change = this.specs.change();
        if (change.spec.replicas !== undefined)
          change.spec.replicas = this.maxReplicasOf(name, change.spec.replicas);
        return this.perform(`update ${name}`, (client, requestId) =>
          client.updateWorkload({ name, ...change, requestId }),
        );
      }
      case 'delete':
        ledger.recordDeletionRequest(name);
        return this.perform(`delete ${name}`, (client, requestId) =>
          client.deleteWorkload({ name, requestId }),
        );
      case 'drain': {
        const drainOptions = this.specs.drain();
        return this.perform(`drain ${nodeId}`, (client) =>
          client.drainNode({ nodeId, ...drainOptions }).then(() => undefined),
        );
      }
      case 'pause':
        return this.perform(`pause ${name}`, (client, requestId) =>
          client.pauseRollout({ name, requestId }),
        );
      case 'resume':
        return this.perform(`resume ${name}`, (client, requestId) =>
          client.resumeRollout({ name, requestId }),
        );
      case 'promote':
        return this.perform(`promote ${name}`, (client, requestId) =>
          client.promoteRollout({ name, requestId }),
        );
      case 'undo': {
        const toVersion = random.chance(0.6) ? 0 : random.wholeNumber(1, 4);
        return this.perform(`undo ${name} to ${toVersion}`, (client, requestId) =>
          client.undoRollout({ name, toVersion, requestId }),
        );
      }
      case 'restart':
        return this.perform(`restart ${name}`, (client, requestId) =>
          client.restartRollout({ name, requestId }),
        );
      case 'cordon':
        return this.perform(`cordon ${nodeId}`, (client) =>
          client.cordonNode({ nodeId }).then(() => undefined),
        );
      case 'uncordon':
        return this.perform(`uncordon ${nodeId}`, (client) =>
          client.uncordonNode({ nodeId }).then(() => undefined),
        );
      case 'read':
        if (addresses.length > 1)
          return this.perform(`read ${name}`, (client) =>
            client.getWorkload({ name, linearizable: this.options.readsFollowers }),
          );
        return this.perform('list', (client) => client.listWorkloads({}).then(() => undefined));
    }
  }

  private actOnService(): Promise<void> {
    const { random } = this.options;
    if (random.chance(0.25)) {
      const name = random.pick(WORKLOADS);
      const expose = [...this.serviceCalls.expose()];
      return this.perform(`update ${name} to expose ${expose.length} ports`, (client, requestId) =>
        client.updateWorkload({
          ...{ name, requestId, spec: { expose }, updateMask: { paths: ['expose'] } },
        }),
      );
    }
    const { description, call } = this.serviceCalls.next();
    return this.perform(description, (_client, requestId, { transport }) =>
      call(transport, requestId).then(() => undefined),
    );
  }

  /** Returns the spec with what services select, and with a port in most cases. */
  private withPorts<Spec extends MessageInitShape<typeof WorkloadSpecSchema>>(spec: Spec): Spec {
    const ports = [{ name: 'http', containerPort: 8080 }];
    return {
      ...spec,
      labels: this.serviceCalls.labels(),
      ...(spec.ports?.length === 0 && this.options.random.chance(0.8) ? { ports } : {}),
    };
  }

  private usesHostPort(name: string): boolean {
    return this.options.hostPorts && name === WITH_HOST_PORT;
  }

  private maxReplicasOf(name: string, replicas: number): number {
    return this.usesHostPort(name) ? Math.min(replicas, MAX_WITH_HOST_PORT) : replicas;
  }

  /**
   * Makes one attempt over the network. Returns undefined when the outcome is unknown because a
   * message was lost or the coordinator died.
   */
  private attempt(call: Call, requestId: string): Promise<Workload | undefined> {
    const { link, time, random, addresses, coordinator } = this.options;
    const address =
      this.leaderAddress ?? (addresses.length > 1 ? random.pick(addresses) : addresses[0]) ?? '';
    this.leaderAddress = undefined;
    const requestLost = random.chance(link.faults.requestLoss);
    const replyLost = random.chance(link.faults.replyLoss);
    return new Promise((resolve, reject) => {
      const timer = time.setTimer(DEADLINE_MS, () =>
        reject(new ConnectError('no response in time', Code.DeadlineExceeded)),
      );
      const answer = (give: () => void): void => {
        if (replyLost) return;
        link.transmit('down', () => {
          timer.cancel();
          give();
        });
      };
      link.transmit('up', () => {
        const server = coordinator(address);
        if (requestLost) return;
        if (server === undefined)
          return answer(() => reject(new ConnectError('connection refused', Code.Unavailable)));
        server.process.onDeath(() =>
          answer(() => reject(new ConnectError('connection reset', Code.Unavailable))),
        );
        server.process.run(() => {
          call(server.client, requestId, server).then(
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

/** Returns the spec with short times of `disconnect.mode` EXCLUSIVE. */
function asExclusive<Spec extends { readonly replicas: number }>(spec: Spec) {
  const disconnect = { mode: DisconnectMode.EXCLUSIVE, stopAfter: durationFromMs(6_000) };
  return { ...spec, disconnect };
}

/** Returns the spec changed to run an image with a host port. */
function withHostPort<Spec extends { readonly replicas: number }>(spec: Spec) {
  const ports = [{ name: 'http', containerPort: 8080, hostPort: 80 }];
  return {
    ...spec,
    image: 'serve:1',
    ports,
    replicas: Math.min(spec.replicas, MAX_WITH_HOST_PORT),
  };
}
