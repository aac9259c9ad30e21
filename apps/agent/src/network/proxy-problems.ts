import type { ControlStatus } from './control-messages.js';

/**
 * Time for which a proxy may leave its agent without an answer, or be without a coordinator, before
 * that is a problem, milliseconds.
 */
export const UNREACHED_AFTER_MS = 10_000;
/** Problems in the text at most. */
const MAX_NAMED = 10;

/** What the network proxy of a node cannot do, from its reports about itself. */
export class ProxyProblems {
  private status: Pick<ControlStatus, 'problems'> | undefined;
  /** Since when the proxy has not answered its agent; undefined while it answers. */
  private silentSinceMs: number | undefined;
  /** Since when the proxy has no contact to a coordinator; undefined while it has. */
  private unconnectedSinceMs: number | undefined;

  /**
   * @param nowMs - Start of the agent.
   * @param errorFile - File in which a proxy that does not start leaves the reason.
   */
  constructor(
    nowMs: number,
    private readonly errorFile: string,
  ) {
    this.silentSinceMs = nowMs;
  }

  /** Notes a report of the proxy. */
  noteStatus(status: Pick<ControlStatus, 'problems' | 'connected'>, nowMs: number): void {
    this.status = status;
    this.silentSinceMs = undefined;
    this.unconnectedSinceMs = status.connected ? undefined : (this.unconnectedSinceMs ?? nowMs);
  }

  /** Notes that the proxy does not answer. */
  noteSilence(nowMs: number): void {
    this.silentSinceMs ??= nowMs;
  }

  /** Returns the problems as text for people; empty: none. */
  describe(nowMs: number): string {
    if (isLong(this.silentSinceMs, nowMs))
      return `the network proxy does not answer; see ${this.errorFile} on the node`;
    const problems = [...(this.status?.problems ?? [])];
    if (isLong(this.unconnectedSinceMs, nowMs))
      problems.unshift(
        'the network proxy reaches no coordinator and uses the last services that it knew',
      );
    const more = problems.length - MAX_NAMED;
    return [...problems.slice(0, MAX_NAMED), ...(more > 0 ? [`and ${more} more`] : [])].join('; ');
  }
}

function isLong(sinceMs: number | undefined, nowMs: number): boolean {
  return sinceMs !== undefined && nowMs - sinceMs >= UNREACHED_AFTER_MS;
}
