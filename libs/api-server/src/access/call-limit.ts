import type { HandlerContext } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import type { ReadDeps } from '../ports.js';

/** Limits of the calls of one kind that run at the same time. */
export interface CallLimits {
  /** Calls of all clients together. */
  readonly most: number;
  /** Calls of one user. Less than `most`, so that one user leaves capacity for others. */
  readonly mostOfUser: number;
  /** Names the calls in error messages, in the plural: `simulations`. */
  readonly noun: string;
}

/** Counts the running calls of one kind, which are expensive, in all and by user. */
export class CallLimit {
  private running = 0;
  private readonly byUser = new Map<string, number>();

  constructor(
    private readonly deps: Pick<ReadDeps, 'getCaller'>,
    private readonly limits: CallLimits,
  ) {}

  /**
   * Counts a call as running.
   * @param context - Of the call. Calls without a user, as in a cluster without TLS, share only the
   *   limit of all clients.
   * @returns A function that ends the call; later calls do nothing.
   * @throws kind `exhausted` when a limit is reached.
   */
  begin(context: Partial<HandlerContext>): () => void {
    const { most, mostOfUser, noun } = this.limits;
    const user = this.findUser(context);
    const ofUser = user === undefined ? 0 : (this.byUser.get(user) ?? 0);
    if (ofUser >= mostOfUser)
      throw new CloudlessError(
        'RATE_LIMITED',
        `${ofUser} of your ${noun} ${ofUser === 1 ? 'is' : 'are'} running already; try again when one has ended`,
      );
    if (this.running >= most)
      throw new CloudlessError(
        'RATE_LIMITED',
        `${most} ${noun} are running already; try again when one has ended`,
      );
    this.running += 1;
    if (user !== undefined) this.byUser.set(user, ofUser + 1);
    let isRunning = true;
    return () => {
      if (isRunning) this.end(user);
      isRunning = false;
    };
  }

  private end(user: string | undefined): void {
    this.running -= 1;
    if (user === undefined) return;
    const left = (this.byUser.get(user) ?? 1) - 1;
    if (left > 0) this.byUser.set(user, left);
    else this.byUser.delete(user);
  }

  private findUser(context: Partial<HandlerContext>): string | undefined {
    const principal = this.deps.getCaller?.(context as HandlerContext)?.principal;
    return principal?.kind === 'user' ? principal.name : undefined;
  }
}
