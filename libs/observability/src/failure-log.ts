import { errorFields, Throttle, type Clock, type Log } from '@cloudless/base';

/** Lines of one RPC that are logged without delay; after these, one line each `everyMs`. */
const LINE_LIMIT = { burst: 5, everyMs: 10_000 };

/**
 * Creates a function that logs the causes of internal errors, which callers do not see. The lines
 * of one RPC are limited, so that repeated failures do not flood the log: `repeated` of the next
 * line counts the failures in between.
 * @param message - The constant phrase of each line.
 * @returns A function that logs one failure: the name of the RPC and the error.
 */
export function createFailureLog(
  { clock, log }: { readonly clock: Clock; readonly log: Log },
  message: string,
): (rpc: string, reason: unknown) => void {
  const lines = new Throttle({ clock, ...LINE_LIMIT });
  return (rpc, reason) => {
    const throttled = lines.take(rpc);
    if (!throttled.passes) return;
    const repeated =
      throttled.suppressed === undefined ? {} : { repeated: throttled.suppressed.count };
    log.error(message, { rpc, ...errorFields(reason), ...repeated });
  };
}
