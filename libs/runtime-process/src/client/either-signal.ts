import type { StopSignal } from '@cloudless/base';

/**
 * A signal that is aborted when one of two is; `release` lets go of them. `AbortSignal.any` keeps a
 * little for each call.
 */
export function eitherSignal(
  first: StopSignal,
  second: StopSignal,
): { readonly signal: StopSignal; readonly release: () => void } {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  if (first.aborted || second.aborted) abort();
  first.addEventListener('abort', abort, { once: true });
  second.addEventListener('abort', abort, { once: true });
  return {
    signal: controller.signal,
    release: () => {
      first.removeEventListener('abort', abort);
      second.removeEventListener('abort', abort);
    },
  };
}
