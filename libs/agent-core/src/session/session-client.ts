import { create } from '@bufbuild/protobuf';
import { CloudlessError, errorFields, errorKindOf, sleep } from '@cloudless/base';
import {
  EnrollNodeRequestSchema,
  type AgentMessage,
  type CoordinatorMessage,
  type KnownCoordinators,
  type Welcome,
} from '@cloudless/api';
import { PROTOCOL_MAX, PROTOCOL_MIN, toHello } from '../node/node-description.js';
import { mergeKnown } from './coordinator-directory.js';
import type { CoordinatorConnection, FileCalls } from './coordinator-transport.js';
import {
  AnswerTimer,
  noteDialled,
  noteOpened,
  noteReached,
  type DialAttempt,
} from './dial-attempt.js';
import { toInventory } from './inventory.js';
import { OrderIntake } from './order-intake.js';
import { PingMonitor } from './ping-monitor.js';
import { SessionDials } from './session-dials.js';
import { SessionFailureLog } from './session-failure-log.js';
import type { SessionClientOptions } from './session-client-options.js';
import { SessionOutbox, type Departure } from './session-outbox.js';
import { DEFAULT_TIMES, toPingTimes, toUsageIntervalMs } from './welcome-times.js';

/** Time to deliver the Goodbye, milliseconds; limits how long a stop of the agent takes. */
const GOODBYE_TIMEOUT_MS = 500;

/** Keeps a session with one of the coordinators. Replicas keep running without a session. */
export class SessionClient {
  private outbox: SessionOutbox | undefined;
  private readonly failureLog: SessionFailureLog;
  private readonly orders: OrderIntake;
  /** True after a coordinator rejected the Hello of this node as not enrolled. */
  private isUnknownToCoordinator = false;
  /** What the newest Hello says about the capabilities and the network of this node. */
  private announced = '';
  /** The addresses of the machine in the last Hello. */
  private announcedAddresses: ReadonlySet<string> = new Set();
  /** What the Goodbye of this agent says. */
  private departure: Departure = { reason: 'the agent is stopping', replicasContinue: true };
  /** Ends the current session; the next session begins soon. */
  private endSession: (reason: CloudlessError) => void = () => undefined;
  private readonly dials: SessionDials;

  constructor(private readonly options: SessionClientOptions) {
    const { addresses, identity, random } = options;
    this.dials = new SessionDials(addresses, identity.current.coordinators, random);
    this.failureLog = new SessionFailureLog(options.log);
    this.orders = new OrderIntake(options.replicas, options.log);
  }

  /** True while a coordinator has accepted the session. */
  get connected(): boolean {
    return this.outbox !== undefined;
  }

  /** Sets what the Goodbye says; call it before the signal of {@link run} is aborted. */
  setDeparture(departure: Departure): void {
    this.departure = departure;
  }

  /**
   * Sends the usage and the conditions now, if there is a session. Ends the session, so that a new
   * session begins, when its Hello has other capabilities, another address of the network proxy, or
   * an address of the machine that the last Hello did not have. An address that has gone is reported
   * by the next session: the address of a bridge comes and goes with its containers.
   */
  sendUsage(): void {
    if (this.outbox !== undefined && this.hasNews()) {
      this.endSession(
        new CloudlessError(
          'unavailable',
          'the capabilities of this node, or its addresses, have changed: the session is renewed to report them',
        ),
      );
    }
    const { nodeMonitor, replicaUsage } = this.options;
    const { usage } = nodeMonitor;
    if (usage === undefined) return;
    usage.replicas = replicaUsage?.() ?? [];
    this.outbox?.sendUsage(usage);
  }

  /** Opens sessions until `signal` is aborted, then sends Goodbye. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, certificates } = this.options;
    while (!signal.aborted) {
      const attempt = this.dials.begin();
      const { address } = attempt;
      let refusedDelayMs: number | undefined;
      let failure: unknown;
      try {
        await this.runSession(attempt, signal);
        if (!signal.aborted)
          this.failureLog.logFailure(
            address,
            new CloudlessError('unavailable', 'the coordinator ended the session'),
          );
      } catch (reason) {
        failure = reason;
        const advice = certificates?.noteFailure(reason);
        refusedDelayMs = advice?.maxDelayMs;
        if (!signal.aborted && advice?.isHandled !== true)
          this.failureLog.logFailure(address, reason, advice?.remedy);
      }
      const delayMs = this.dials.end(attempt, { failure, refusedDelayMs, nowMs: clock.now() });
      await sleep(clock, delayMs, signal).catch(() => undefined);
    }
  }

  /**
   * Runs one session. Resolves when the coordinator or the agent ends the session.
   * @param attempt - This method sets its progress.
   * @throws the reason why the session broke or was not opened.
   */
  private async runSession(attempt: DialAttempt, signal: AbortSignal): Promise<void> {
    const { transport, clock, replicas } = this.options;
    const { address, silenceMs } = attempt;
    const dialing = new AbortController();
    let failure: CloudlessError | undefined;
    const abortSession = (reason: CloudlessError): void => {
      failure ??= reason;
      dialing.abort(reason);
    };
    this.endSession = abortSession;
    const answerTimer = new AnswerTimer(clock, (reason) => {
      attempt.silent = true;
      abortSession(reason);
    });
    answerTimer.restart(attempt.openMs);
    const stopDialing = (): void =>
      abortSession(new CloudlessError('unavailable', 'the agent is stopping'));
    signal.addEventListener('abort', stopDialing, { once: true });
    let connection: CoordinatorConnection | undefined;
    let detach: (() => void) | undefined;
    let pingMonitor: PingMonitor | undefined;
    let welcome: Welcome | undefined;
    const outbox = new SessionOutbox(
      () => this.createFirstMessages(),
      (replicaId) => replicas.findReport(replicaId),
    );
    const sendGoodbye = (): void => {
      // From here on the leases of exclusive replicas run out, as the coordinator assumes: it counts
      // from the Goodbye.
      attempt.admitted = false;
      this.options.leaseKeeper?.release();
      outbox.sendGoodbye(this.departure);
      clock.setTimer(GOODBYE_TIMEOUT_MS, () => connection?.close());
    };
    const unsubscribe = replicas.subscribe({
      onChanged: (replicaId) => outbox.reportChanged(replicaId),
      onRefused: (refusal) => outbox.refuseOrder(refusal),
      onForgotten: (report) => outbox.reportForgotten(report),
    });
    try {
      await this.prepareIdentity(address, dialing.signal);
      noteDialled(attempt, answerTimer);
      const onReached = (): void => noteReached(attempt, answerTimer);
      const open = await transport.connect(address, dialing.signal, onReached);
      connection = open;
      noteOpened(attempt, answerTimer);
      if (failure !== undefined) throw failure;
      detach = this.options.certificates?.attach(open);
      dialing.signal.addEventListener('abort', () => open.close(), { once: true });
      pingMonitor = new PingMonitor(
        open,
        clock,
        { ...DEFAULT_TIMES, leaseMs: silenceMs },
        (reason, isSilent) => {
          attempt.silent ||= isSilent;
          abortSession(reason);
        },
        (sentAtMs) => {
          if (attempt.admitted) this.options.contact.confirm(sentAtMs);
        },
      );
      if (this.needsEnrolment()) await this.enroll(open);
      for await (const message of open.openSession(outbox)) {
        if (message.message.case === 'welcome') {
          answerTimer.cancel();
          signal.removeEventListener('abort', stopDialing);
          if (signal.aborted) sendGoodbye();
          else signal.addEventListener('abort', sendGoodbye, { once: true });
          welcome = message.message.value;
          await this.handleWelcome(welcome, address, outbox, pingMonitor);
          attempt.epoch = welcome.epoch;
          attempt.welcomed = true;
        } else if (message.message.case === 'admitted') {
          attempt.admitted = true;
          pingMonitor.pingNow();
          if (welcome !== undefined && !signal.aborted) this.admit(welcome, address, open);
        } else {
          if (!attempt.welcomed)
            throw new CloudlessError(
              'invalid',
              'the first message of the coordinator was not a Welcome',
            );
          await this.handleMessage(message, address, outbox);
        }
      }
      if (failure !== undefined) throw failure;
    } catch (reason) {
      if (errorKindOf(reason) === 'notFound') this.isUnknownToCoordinator = true;
      throw failure ?? reason;
    } finally {
      answerTimer.cancel();
      signal.removeEventListener('abort', stopDialing);
      signal.removeEventListener('abort', sendGoodbye);
      unsubscribe();
      detach?.();
      this.options.leaseKeeper?.release();
      pingMonitor?.stop();
      outbox.end();
      if (this.outbox === outbox) this.outbox = undefined;
      connection?.close();
    }
  }

  private *createFirstMessages(): Generator<AgentMessage['message']> {
    const { node, identity, bootId, capabilities, nodeMonitor, replicas } = this.options;
    this.announced = this.describeVolatile();
    this.announcedAddresses = new Set(node().network?.machineAddresses);
    yield {
      case: 'hello',
      value: toHello(node(), identity.current, {
        bootId,
        capabilities: capabilities(),
        conditions: nodeMonitor.conditions,
        unreachableLeader: this.dials.unreachableLeader,
      }),
    };
    for (const value of toInventory(replicas.listReports())) yield { case: 'inventory', value };
  }

  /** Returns true when a new session has something to report that the last Hello did not contain. */
  private hasNews(): boolean {
    const { machineAddresses = [] } = this.options.node().network ?? {};
    return (
      this.describeVolatile() !== this.announced ||
      machineAddresses.some((address) => !this.announcedAddresses.has(address))
    );
  }

  /** Returns a text that is equal while a Hello has the same capabilities and proxy address. */
  private describeVolatile(): string {
    const { capabilities, node } = this.options;
    const { address = '' } = node().network ?? {};
    return [address, ...[...capabilities()].sort()].join(' ');
  }

  /** Joins the cluster or renews an expired certificate, if the cluster has identities. */
  private async prepareIdentity(address: string, signal: AbortSignal): Promise<void> {
    const { certificates } = this.options;
    if (certificates === undefined) return;
    await certificates.prepare(address, (clusterId) => this.requireOwnCluster(clusterId), signal);
    if (certificates.clusterId !== undefined) await this.joinCluster(certificates.clusterId);
  }

  /** A node with an identity is enrolled by its join. */
  private needsEnrolment(): boolean {
    const { identity, certificates } = this.options;
    if (certificates !== undefined) return false;
    return identity.current.clusterId === undefined || this.isUnknownToCoordinator;
  }

  private async enroll(connection: CoordinatorConnection): Promise<void> {
    const { identity, log } = this.options;
    const { nodeId, instanceId } = identity.current;
    const { clusterId } = await connection.enroll(
      create(EnrollNodeRequestSchema, { nodeId, instanceId }),
    );
    await this.joinCluster(clusterId);
    this.isUnknownToCoordinator = false;
    log.info('node enrolled', { clusterId });
  }

  /** Stores the cluster of this node. Has no effect when the node knows its cluster. */
  private async joinCluster(clusterId: string): Promise<void> {
    const { identity, onEnrolled } = this.options;
    this.requireOwnCluster(clusterId);
    if (identity.current.clusterId !== undefined) return;
    await identity.joinCluster(clusterId);
    await onEnrolled(clusterId);
  }

  private async handleWelcome(
    welcome: Welcome,
    address: string,
    outbox: SessionOutbox,
    pingMonitor: PingMonitor,
  ): Promise<void> {
    const { identity, log } = this.options;
    const { clusterId, epoch, protocol } = welcome;
    this.requireOwnCluster(clusterId);
    if (protocol < PROTOCOL_MIN || protocol > PROTOCOL_MAX) {
      throw new CloudlessError(
        'unimplemented',
        `the coordinator uses session protocol ${protocol}, this agent supports ${PROTOCOL_MIN} to ${PROTOCOL_MAX}`,
      );
    }
    if (epoch < identity.current.highestEpoch) {
      log.warn('the coordinator has an older epoch: its orders are refused', {
        epoch,
        heldEpoch: identity.current.highestEpoch,
      });
    }
    await identity.raiseEpoch(epoch);
    pingMonitor.setTimes(toPingTimes(welcome));
    this.dials.applyTimes(welcome);
    this.options.replicas.noteSessionStarted();
    this.outbox = outbox;
    this.failureLog.clear();
    log.info('session established', { coordinator: address, clusterId, epoch });
    this.sendUsage();
    this.scheduleUsage(toUsageIntervalMs(welcome), outbox);
  }

  /** Lets the lease keeper watch over the session, if the coordinator knows RenewLease. */
  private admit(welcome: Welcome, address: string, calls: FileCalls): void {
    this.options.onAdmitted?.(calls);
    const { sessionId } = welcome;
    const { nodeId } = this.options.identity.current;
    if (sessionId !== '')
      this.options.leaseKeeper?.keep({ address, nodeId, sessionId, ...toPingTimes(welcome) });
  }

  private scheduleUsage(intervalMs: number, outbox: SessionOutbox): void {
    this.options.clock.setTimer(intervalMs, () => {
      if (this.outbox !== outbox) return;
      this.sendUsage();
      this.scheduleUsage(intervalMs, outbox);
    });
  }

  private async handleMessage(
    { message }: CoordinatorMessage,
    address: string,
    outbox: SessionOutbox,
  ): Promise<void> {
    if (message.case === 'order') {
      await this.orders.accept(message.value);
    } else if (message.case === 'openTunnel') {
      const refusal = this.options.openTunnel(message.value, address);
      if (refusal !== undefined) outbox.refuseTunnel(refusal);
    } else if (message.case === 'renewCertificate' && this.options.certificates !== undefined) {
      await this.options.certificates.requestRenewal(message.value.trustBundle);
    } else if (message.case === 'coordinators') {
      await this.learnCoordinators(message.value);
    } else if (message.case === 'reconnectTimes') {
      this.dials.applyTimes(message.value);
    } else if (message.case === 'filesChanged') {
      this.options.onFilesChanged?.(message.value.replicaIds);
    } else if (message.case === 'endpointsGone') {
      this.options.replicas.noteEndpointsGone(message.value.replicaIds);
    } else {
      this.options.log.debug('message of an unsupported kind ignored');
    }
  }

  private async learnCoordinators({ coordinators }: KnownCoordinators): Promise<void> {
    const { identity, log } = this.options;
    this.dials.setKnown(mergeKnown(identity.current.coordinators ?? [], coordinators));
    await identity
      .learnCoordinators(coordinators)
      .catch((reason: unknown) => log.warn('coordinators not stored', errorFields(reason)));
  }

  /** @throws kind `precondition` when this agent belongs to another cluster. */
  private requireOwnCluster(clusterId: string): void {
    const { identity, resetCommand } = this.options;
    if (clusterId === '')
      throw new CloudlessError('invalid', 'the coordinator did not send a cluster id');
    const own = identity.current.clusterId;
    if (own === undefined || own === clusterId) return;
    throw new CloudlessError(
      'precondition',
      `this agent belongs to cluster ${own}, and the coordinator to cluster ${clusterId}; to remove the agent from its ` +
        `cluster, which also stops its workloads, stop the agent and run: ${resetCommand}`,
    );
  }
}
