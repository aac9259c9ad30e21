import {
  StoppedError,
  Wakeup,
  backoffDelayMs,
  errorFields,
  sleep,
  type Clock,
  type Log,
  type Random,
  type StopSignal,
} from '@cloudless/base';
import { LEADER_KEY, toKey } from '../records/records.js';
import type { ViewFollower } from '../view/view-follower.js';
import {
  campaign,
  grantLeaderLease,
  revoke,
  withCallLimit,
  type CandidateIdentity,
  type ElectionStore,
  type GrantedLease,
  type WonCampaign,
} from './campaign.js';
import {
  ACT_AFTER_RENEWAL_MS,
  CAMPAIGN_JITTER_MS,
  CATCH_UP_MS,
  STEP_DOWN_PAUSE_MS,
  VACANCY_CHECK_MS,
} from './election-timing.js';
import { renewWhileActive } from './lease-renewal.js';
import type { LeadershipMetrics } from './leadership-metrics.js';
import type { Leadership } from './leadership.js';
import type { MutableTerm } from './leadership-term.js';
import { findNextInLine } from './succession.js';

export interface LeaderElectionDeps {
  readonly store: ElectionStore;
  readonly follower: ViewFollower;
  readonly leadership: Leadership;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Id of this process; another one after each start. */
  readonly holder: string;
  readonly identity: CandidateIdentity;
  readonly metrics: LeadershipMetrics;
}

/**
 * Makes this coordinator the leader when no other one leads, and ends its leadership when the lease
 * is not renewed in time. Exactly one coordinator holds the leader lease of a store; the leader
 * record fences all others.
 *
 * - While another coordinator leads, the election waits for the lease record to disappear.
 * - Then the first of the other coordinators by id takes the lease at once, the rest after a short
 *   random delay, if the view shows the newest revision.
 * - While this coordinator leads, it renews the lease. The term ends when no renewal was answered
 *   in time, when the lease or the leader record is no longer its own, and with {@link stepDown}.
 */
export class LeaderElection {
  private readonly stopping = new AbortController();
  private readonly changed = new Wakeup();
  private readonly unsubscribes: readonly (() => void)[];
  private readonly running: Promise<void>;
  private readonly store: ElectionStore;
  /** Monotonic time before which this coordinator does not campaign. */
  private notBeforeMs = 0;
  /** Pending from the start of a campaign until its lease was revoked or has ended. */
  private attempt: Promise<void> = Promise.resolve();

  constructor(private readonly deps: LeaderElectionDeps) {
    const { follower, leadership } = deps;
    this.store = withCallLimit(deps.store, deps.clock);
    this.unsubscribes = [
      follower.subscribe((changes) => {
        if (changes.some(({ kind }) => kind === 'leaderlease')) this.changed.wake();
      }),
      leadership.onRoleChange(() => this.changed.wake()),
    ];
    this.running = this.run();
  }

  /**
   * Ends the leadership of this coordinator, if it has one, revokes its lease, so that another
   * coordinator takes over at once, and does not campaign for {@link STEP_DOWN_PAUSE_MS}. The term
   * has ended when this method returns its promise.
   * @returns True when this coordinator led. Resolves when the lease was revoked; also when that
   *   failed, because the lease then ends by itself.
   */
  stepDown(): Promise<boolean> {
    return this.endLeadership('the coordinator stepped down');
  }

  /** Steps down and leaves the election. A second call has no effect. */
  async close(): Promise<void> {
    this.stopping.abort();
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    await this.endLeadership('the coordinator has left the election');
    this.changed.wake();
    await this.running;
  }

  /** @param cause - Says in the log why the term has ended. */
  private async endLeadership(cause: string): Promise<boolean> {
    const { clock, leadership } = this.deps;
    this.notBeforeMs = clock.now() + STEP_DOWN_PAUSE_MS;
    const term = leadership.activeTerm;
    if (term !== undefined) leadership.endTerm(term, new Error(cause));
    await this.attempt;
    return term !== undefined;
  }

  private async run(): Promise<void> {
    const { signal } = this.stopping;
    for (let failures = 0; !signal.aborted;) {
      try {
        await this.waitForVacancy();
        const attempt = this.campaignAndLead();
        this.attempt = attempt.catch(() => undefined);
        await attempt;
        failures = 0;
      } catch (reason) {
        if (signal.aborted) return;
        failures += 1;
        this.deps.log.warn('campaign for the leadership failed', errorFields(reason));
        await this.pause(backoffDelayMs(RETRY_POLICY, failures, this.deps.random));
      }
    }
  }

  /**
   * Resolves when nobody seems to hold the leader lease: at once for the coordinator that is next in
   * line when it has seen the end of the lease, otherwise after a random delay.
   */
  private async waitForVacancy(): Promise<void> {
    const { clock, random } = this.deps;
    const { signal } = this.stopping;
    for (let sawLease = false; ;) {
      sawLease ||= this.seesLease;
      if (signal.aborted) throw new StoppedError();
      const pauseMs = this.notBeforeMs - clock.now();
      if (pauseMs > 0) await this.pause(Math.max(1, pauseMs));
      else if (this.seesLease && !(await this.isLeaseGone())) continue;
      else {
        if (!sawLease || !this.isNextInLine) await this.pause(random.next() * CAMPAIGN_JITTER_MS);
        if (clock.now() >= this.notBeforeMs) return;
      }
    }
  }

  /**
   * Waits for the view to show that the lease record is gone, at most {@link VACANCY_CHECK_MS},
   * and then asks the store.
   */
  private async isLeaseGone(): Promise<boolean> {
    const { clock } = this.deps;
    let isTimeToCheck = false;
    const timer = clock.setTimer(VACANCY_CHECK_MS, () => {
      isTimeToCheck = true;
      this.changed.wake();
    });
    await this.changed.wait(this.stopping.signal);
    timer.cancel();
    if (!this.seesLease) return true;
    return isTimeToCheck && (await this.isLeaseAbsent());
  }

  private async isLeaseAbsent(): Promise<boolean> {
    return (await this.store.get(toKey('leaderlease', LEADER_KEY))) === undefined;
  }

  private get seesLease(): boolean {
    return this.deps.follower.view.get('leaderlease', LEADER_KEY) !== undefined;
  }

  /** True for one coordinator in most elections. The transaction of the campaign decides. */
  private get isNextInLine(): boolean {
    const { follower, identity } = this.deps;
    const last = follower.view.get('leader', LEADER_KEY)?.value.coordinatorId;
    return findNextInLine(follower.view, last)?.id === identity.coordinatorId;
  }

  /** Campaigns; when won, leads until the term has ended and its lease was revoked. */
  private async campaignAndLead(): Promise<void> {
    const { store } = this;
    const { signal } = this.stopping;
    const granted = await this.prepare();
    if (granted === undefined) return;
    const won = await campaign({ ...this.deps, store, signal }, granted);
    if (won === undefined) return;
    try {
      const term = await this.beginTerm(won);
      if (term !== undefined) await this.lead(term, won);
    } finally {
      await revoke({ store, log: this.deps.log }, won.lease);
    }
  }

  /**
   * Asks for a lease and for the newest revision at the same time, as each takes a round trip. Time
   * that the view needs is taken off the lease.
   * @returns The lease; undefined when this coordinator cannot campaign now.
   */
  private async prepare(): Promise<GrantedLease | undefined> {
    const { store } = this;
    const { clock, log } = this.deps;
    const [granted, caughtUp] = await Promise.allSettled([
      grantLeaderLease({ store, clock }),
      this.catchUp(),
    ]);
    if (granted.status === 'rejected') throw granted.reason;
    const isCaughtUp = caughtUp.status === 'fulfilled' && caughtUp.value;
    if (isCaughtUp && !this.seesLease) return granted.value;
    await revoke({ store, log }, granted.value.lease);
    if (caughtUp.status === 'rejected') throw caughtUp.reason;
    if (isCaughtUp && this.seesLease && (await this.isLeaseAbsent())) this.reloadView();
    return undefined;
  }

  /** Mends a view that has reached the newest revision and shows a record that was deleted. */
  private reloadView(): void {
    const { follower, log } = this.deps;
    if (!this.seesLease) return;
    log.error('view lost the end of a leader lease, reading a new snapshot', {
      revision: follower.view.revision,
    });
    follower.reload();
  }

  /**
   * Waits until the view shows the newest revision, so that no coordinator leads by an old view.
   * @returns False when the view did not get there in time.
   */
  private async catchUp(): Promise<boolean> {
    const { follower } = this.deps;
    const revision = await this.store.revision();
    return this.inTime(CATCH_UP_MS, (signal) => follower.waitForRevision(revision, signal));
  }

  /** @returns Undefined when the view did not show the new leader record in time. */
  private async beginTerm(won: WonCampaign): Promise<MutableTerm | undefined> {
    const { clock, follower, leadership } = this.deps;
    const actUntilMs = won.sentAtMs + ACT_AFTER_RENEWAL_MS;
    const isShown = await this.inTime(actUntilMs - clock.now(), (signal) =>
      follower.waitForRevision(won.revision, signal),
    );
    const mayLead = isShown && clock.now() >= this.notBeforeMs && clock.now() < actUntilMs;
    return mayLead && !this.stopping.signal.aborted ? leadership.begin(won, actUntilMs) : undefined;
  }

  private async lead(term: MutableTerm, won: WonCampaign): Promise<void> {
    const { store } = this;
    const { clock, leadership, metrics } = this.deps;
    const cause = await renewWhileActive({ store, clock, metrics }, term, won);
    leadership.endTerm(term, cause);
  }

  /** Runs `work`, which ends at its signal, for at most `limitMs`. Returns whether it completed. */
  private async inTime(
    limitMs: number,
    work: (signal: StopSignal) => Promise<void>,
  ): Promise<boolean> {
    const limit = new AbortController();
    const stop = (): void => limit.abort();
    const timer = this.deps.clock.setTimer(limitMs, stop);
    this.stopping.signal.addEventListener('abort', stop, { once: true });
    try {
      await work(limit.signal);
      return true;
    } catch (reason) {
      if (reason instanceof StoppedError) return false;
      throw reason;
    } finally {
      timer.cancel();
      this.stopping.signal.removeEventListener('abort', stop);
    }
  }

  /** Sleeps; ends early when the election is closed. */
  private async pause(delayMs: number): Promise<void> {
    await sleep(this.deps.clock, delayMs, this.stopping.signal).catch(() => undefined);
  }
}

const RETRY_POLICY = { firstMs: 100, maxMs: 1_000, jitter: 0.5 };
