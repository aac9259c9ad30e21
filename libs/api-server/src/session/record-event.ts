import { errorFields } from '@cloudless/base';
import type { EventInit } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/**
 * Commits an event that belongs to no change of a record, also while a restored state waits for its
 * acceptance. A failure is only logged.
 */
export function recordEvent(
  { state, log }: Pick<ApiServerDeps, 'state' | 'log'>,
  event: EventInit,
): void {
  state
    .commitObserved(state.transaction().event(event))
    .catch((reason: unknown) =>
      log.warn('event not written', { reason: event.reason, ...errorFields(reason) }),
    );
}
