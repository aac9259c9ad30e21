import { CloudlessError, type Clock } from '@cloudless/base';
import type { AuthorizeAgentCallRequest, AuthorizeAgentCallResponse } from '@cloudless/api';

/** Time for which a decision of a coordinator holds, milliseconds. */
export const DECISION_MS = 5_000;
/** Time for which a refusal is repeated without another question, milliseconds. */
const REFUSAL_MS = 1_000;
/** Age at which the decision about an open call is asked for again, milliseconds. */
const REFRESH_MS = 2_500;
/** Largest number of decisions in memory; the oldest is removed first. */
const MAX_DECISIONS = 1_000;

/** @param running - True: the call was allowed before, and is running. */
type Ask = (
  request: AuthorizeAgentCallRequest,
  running: boolean,
) => Promise<AuthorizeAgentCallResponse>;

/** Decisions of coordinators about calls of users, kept for 5 s. */
export class CallDecisions {
  private readonly decisions = new Map<string, Decision>();

  constructor(
    private readonly clock: Pick<Clock, 'now'>,
    private readonly ask: Ask,
  ) {}

  /**
   * Asks whether a call is allowed, unless the answer is known.
   * @param key - Identifies certificate, RPC and target.
   * @param shared - False: each call is asked about, because the coordinator records it. A refusal is
   *   shared in any case, for 1 s.
   * @returns A function that throws as soon as the call is not allowed any more, for open calls.
   * @throws kind `denied` when the call is not allowed; as `ask` when no coordinator answers.
   */
  async require(
    key: string,
    request: AuthorizeAgentCallRequest,
    { shared = true } = {},
  ): Promise<() => void> {
    const known = this.decisions.get(key);
    const isKnown = known !== undefined && (known.isRefused || (shared && known.isCurrent));
    const decision = isKnown ? known : this.add(key, request);
    await decision.require();
    return () => decision.check();
  }

  private add(key: string, request: AuthorizeAgentCallRequest): Decision {
    const decision = new Decision(this.clock, (running) => this.ask(request, running));
    this.decisions.delete(key);
    this.decisions.set(key, decision);
    const [oldest] = this.decisions.keys();
    if (oldest !== undefined && this.decisions.size > MAX_DECISIONS) this.decisions.delete(oldest);
    return decision;
  }
}

/** The decisions of coordinators about calls with one certificate, RPC and target. */
class Decision {
  private askedAtMs: number;
  private answer: Promise<void>;
  /** Time at which the agent sent the newest request that a coordinator has allowed. */
  private confirmedAtMs = -Infinity;
  private refusal: unknown;
  private isAsking = true;

  constructor(
    private readonly clock: Pick<Clock, 'now'>,
    private readonly ask: (running: boolean) => Promise<AuthorizeAgentCallResponse>,
  ) {
    this.askedAtMs = clock.now();
    this.answer = this.start();
  }

  /** True while the newest decision holds, or the agent waits for the decision. */
  get isCurrent(): boolean {
    return this.refusal === undefined && this.clock.now() - this.askedAtMs < DECISION_MS;
  }

  /** True for a second after a refusal. */
  get isRefused(): boolean {
    return this.refusal !== undefined && this.clock.now() - this.askedAtMs < REFUSAL_MS;
  }

  /** @throws when the call is not allowed. */
  async require(): Promise<void> {
    await this.answer;
  }

  /** @throws when the call is no longer allowed, or no coordinator has confirmed the call for 5 s. */
  check(): void {
    const ageMs = this.clock.now() - this.confirmedAtMs;
    if (this.refusal !== undefined && ageMs >= DECISION_MS) throw this.refusal;
    if (this.refusal instanceof CloudlessError && this.refusal.kind === 'denied')
      throw this.refusal;
    if (ageMs >= DECISION_MS)
      throw new CloudlessError('unavailable', 'no coordinator has confirmed this call for 5 s');
    if (ageMs >= REFRESH_MS && !this.isAsking) {
      this.answer = this.start();
      this.answer.catch(() => undefined); // the next check throws
    }
  }

  private async start(): Promise<void> {
    this.isAsking = true;
    const askedAtMs = (this.askedAtMs = this.clock.now());
    try {
      const running = this.confirmedAtMs !== -Infinity;
      const { allowed, principal, reason } = await this.ask(running);
      if (!allowed)
        throw new CloudlessError(
          'denied',
          reason === '' ? `${principal} may not make this call` : reason,
        );
      this.confirmedAtMs = askedAtMs;
      this.refusal = undefined;
    } catch (reason) {
      this.refusal = reason;
      throw reason;
    } finally {
      this.isAsking = false;
    }
  }
}
