import {
  definedFields,
  errorFields,
  errorKindOf,
  errorMessageOf,
  type ErrorKind,
  type Log,
} from '@cloudless/base';
import { readLeaderHint } from '@cloudless/api';

/** Error kinds that an operator must resolve: retries alone do not succeed. */
const NEEDS_OPERATOR: readonly ErrorKind[] = [
  'invalid',
  'denied',
  'precondition',
  'unauthenticated',
  'unimplemented',
  'exists',
];

/**
 * Logs why there is no session. The same failure of an address is logged once, until a session is
 * established.
 */
export class SessionFailureLog {
  /** Newest logged failure text, by coordinator address. */
  private readonly lastFailure = new Map<string, string>();

  constructor(private readonly log: Log) {}

  /** A session is established: the next failure is logged again. */
  clear(): void {
    this.lastFailure.clear();
  }

  /** @param remedy - What an operator has to do, if the error does not say so. */
  logFailure(address: string, reason: unknown, remedy?: string): void {
    const { log } = this;
    const leader = readLeaderHint(reason)?.address;
    if (leader !== undefined)
      return log.debug('the coordinator does not lead', { coordinator: address, leader });
    const text = errorMessageOf(reason);
    const fields = { coordinator: address, ...errorFields(reason), ...definedFields({ remedy }) };
    if (this.lastFailure.get(address) === text) return log.debug('still no session', fields);
    this.lastFailure.set(address, text);
    if (NEEDS_OPERATOR.includes(errorKindOf(reason)))
      log.error('no session: the coordinator rejects this agent', fields);
    else log.warn('no session; replicas keep running', fields);
  }
}
