import {
  CloudlessError,
  errorKindOf,
  errorMessageOf,
  type ContainerId,
  type ErrorKind,
} from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';

/**
 * Kinds of start failures by the text of the error, because container runtimes report these
 * failures with the unspecific status code `Unknown`.
 */
const KINDS_BY_TEXT: readonly { readonly kind: ErrorKind; readonly text: RegExp }[] = [
  {
    kind: 'exhausted',
    text: /no space left on device|cannot allocate memory|too many open files|no IP addresses available|address already in use/i,
  },
  {
    kind: 'invalid',
    text: /executable file not found|no command specified|exec format error|exec: .*(?:no such file or directory|permission denied|is a directory|not a directory)/i,
  },
];

/** Texts of containerd and CRI-O for a user name that does not exist in the image. */
const UNKNOWN_USER = /no users found|unable to find user|no matching entries in passwd/i;

/**
 * Converts the error of a failed start to one of the kinds that `ContainerRuntime.start` documents.
 * @returns The error itself when its kind needs no conversion.
 */
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
  const match = KINDS_BY_TEXT.find(({ text }) => text.test(message));
  return match === undefined ? reason : new CloudlessError(match.kind, message, { cause: reason });
}

/**
 * Converts the error of a failed start whose sandbox and container were removed: kind `internal`
 * becomes `precondition`. Kind `internal` leaves open whether the container runs, so the agent
 * would retry the start immediately and without end.
 */
export function toRemovedStartError(reason: unknown): unknown {
  if (!(reason instanceof CloudlessError) || reason.kind !== 'internal') return reason;
  return new CloudlessError('precondition', reason.message, { cause: reason });
}

/** Texts of container runtimes for a sandbox name that is in use. */
const NAME_TAKEN = /is reserved for|already exists/i;

/**
 * Returns true when a container runtime refused a sandbox because another sandbox has the same
 * name.
 */
export function isNameTaken(reason: unknown): boolean {
  return errorKindOf(reason) === 'exists' || NAME_TAKEN.test(errorMessageOf(reason));
}

/**
 * Refusal of a start whose container id belongs to an existing container. The existing container is
 * not changed.
 */
export class IdInUseError extends CloudlessError {
  constructor(containerId: ContainerId) {
    super('exists', `containerId: ${containerId} is in use`);
  }
}
