import { errorFields, Throttle, type Clock, type Log } from '@cloudless/base';

/** Failures of one call that are logged in a row, and from then on one each so many milliseconds. */
const LINES = { burst: 5, everyMs: 10_000 };

/**
 * Logs the causes of calls that failed inside, which callers do not see. A caller who makes a call fail again and again
 * does not flood the log: `repeated` of the next line counts the failures in between.
 * @param message - The constant phrase of each line.
 * @returns To be called with the RPC and what was thrown.
 */
export function createFailureLog(
  { clock, log }: { readonly clock: Clock; readonly log: Log },
  message: string,
): (rpc: string, reason: unknown) => void {
  const lines = new Throttle({ clock, ...LINES });
  return (rpc, reason) => {
    const throttled = lines.take(rpc);
    if (!throttled.passes) return;
    const repeated = throttled.left === undefined ? {} : { repeated: throttled.left.count };
    log.error(message, { rpc, ...errorFields(reason), ...repeated });
  };
}
