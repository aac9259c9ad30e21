import {
  CloudlessError,
  errorKindOf,
  errorMessageOf,
  type ContainerId,
  type ErrorKind,
} from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';

/** Kinds of errors that only the text of a runtime reveals, not its status code. */
const MEANINGS: readonly { readonly kind: ErrorKind; readonly text: RegExp }[] = [
  {
    kind: 'exhausted',
    text: /no space left on device|cannot allocate memory|too many open files|no IP addresses available|address already in use/i,
  },
  {
    kind: 'invalid',
    text: /executable file not found|no command specified|exec format error|exec: .*(?:no such file or directory|permission denied|is a directory|not a directory)/i,
  },
];

/** Errors of containerd and CRI-O for a user name that the image does not have. */
const UNKNOWN_USER = /no users found|unable to find user|no matching entries in passwd/i;

/** Converts the error of a start to the kinds that `ContainerRuntime.start` promises. */
export function toStartError(
  reason: unknown,
  { security }: Pick<ContainerRequest, 'security'> = {},
): unknown {
  if (errorKindOf(reason) === 'unavailable') return reason;
  const message = errorMessageOf(reason);
  if (security?.userName !== undefined && UNKNOWN_USER.test(message)) {
    const name = JSON.stringify(security.userName);
    return new CloudlessError(
      'invalid',
      `security.userName: the image has no user ${name}: ${message}`,
      { cause: reason },
    );
  }
  const meaning = MEANINGS.find(({ text }) => text.test(message));
  return meaning === undefined
    ? reason
    : new CloudlessError(meaning.kind, message, { cause: reason });
}

/**
 * Converts the error of a start of which nothing is left: an error without a status code becomes a
 * refusal. As `internal`, which leaves open whether the container runs, the start would be retried
 * at once for ever.
 */
export function toRefusal(reason: unknown): unknown {
  if (!(reason instanceof CloudlessError) || reason.kind !== 'internal') return reason;
  return new CloudlessError('precondition', reason.message, { cause: reason });
}

/** Messages of runtimes for a sandbox name that is in use. */
const NAME_TAKEN = /is reserved for|already exists/i;

/** Whether a runtime refused a sandbox because another sandbox has its name. */
export function isNameTaken(reason: unknown): boolean {
  return errorKindOf(reason) === 'exists' || NAME_TAKEN.test(errorMessageOf(reason));
}

/** A start with the id of an existing container, which must not be touched. */
export class IdInUseError extends CloudlessError {
  constructor(containerId: ContainerId) {
    super('exists', `containerId: ${containerId} is in use`);
  }
}
