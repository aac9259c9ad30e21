import type { StopSignal } from '@cloudless/base';

/**
 * Returns a signal that is aborted when either input is aborted. Call `release` to remove the
 * listeners: `AbortSignal.any` keeps memory for each call while its inputs live.
 */
export function combineSignals(
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
