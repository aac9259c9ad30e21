import { existsSync } from 'node:fs';
import { CloudlessError, errorMessageOf, type Clock } from '@cloudless/base';
import { probeCriRuntime, type CriProbe, type Permissions } from '@cloudless/runtime-cri';

/** Usual sockets of container runtimes in order of preference. */
export const USUAL_SOCKETS: readonly string[] = [
  '/run/containerd/containerd.sock',
  '/run/cloudless-containers/containerd.sock',
  '/run/crio/crio.sock',
];

/** Usable container runtime, or the reason why there is none. */
export type DetectionResult =
  | { readonly kind: 'found'; readonly socketPath: string; readonly probe: CriProbe }
  | { readonly kind: 'none'; readonly reason: string };

export interface DetectionOptions extends Permissions {
  /** Socket to use; undefined: the usual sockets in order. */
  readonly socketPath?: string;
  /** True allows a container runtime that other programs use too. */
  readonly shared: boolean;
  readonly clock: Clock;
  /** For tests. */
  readonly sockets?: readonly string[];
  readonly isRoot?: boolean;
  readonly exists?: (path: string) => boolean;
  readonly probe?: typeof probeCriRuntime;
}

/**
 * Finds the first usable container runtime, or says for each present one why it cannot be used.
 * Makes only read calls.
 */
export async function detectContainerRuntime(options: DetectionOptions): Promise<DetectionResult> {
  const { socketPath, sockets = USUAL_SOCKETS, isRoot = process.getuid?.() === 0 } = options;
  const { exists = existsSync, probe: ask = probeCriRuntime } = options;
  const candidates =
    socketPath === undefined ? sockets.filter((path) => exists(path)) : [socketPath];
  if (candidates.length === 0)
    return { kind: 'none', reason: `no container runtime was found at ${joinWithOr(sockets)}` };
  if (!isRoot)
    return {
      kind: 'none',
      reason: `the agent must run as root to use the container runtime at ${candidates[0] ?? ''}`,
    };
  const failures: string[] = [];
  for (const candidate of candidates) {
    try {
      const probe = await ask({ ...options, socketPath: candidate });
      const obstacle = findObstacle(probe, candidate, options.shared);
      if (obstacle === undefined) return { kind: 'found', socketPath: candidate, probe };
      failures.push(obstacle);
    } catch (reason) {
      failures.push(errorMessageOf(reason));
    }
  }
  return { kind: 'none', reason: failures.join('; ') };
}

function findObstacle(
  { name, version, ready, notReady, foreign }: CriProbe,
  socketPath: string,
  shared: boolean,
): string | undefined {
  const runtimeText = `${name} ${version} at ${socketPath}`;
  if (!ready) return `${runtimeText} is not ready: ${notReady.join('; ')}`;
  if (shared || foreign.count === 0) return undefined;
  const some = foreign.names.join(', ') + (foreign.count > foreign.names.length ? ', …' : '');
  return `${runtimeText} is used by other programs (${foreign.count} ${foreign.count === 1 ? 'pod' : 'pods'}: ${some}); --runtime cri shares it with them`;
}

/** Error for `--runtime cri` without a usable container runtime. */
export function createContainersMissingError(reason: string): CloudlessError {
  return new CloudlessError(
    'precondition',
    `--runtime cri: ${reason}. Start a container runtime that supports the CRI (containerd 1.6, CRI-O 1.23, or newer) and name its ` +
      'socket with --cri-socket, or run without containers with --runtime process',
  );
}

function joinWithOr(items: readonly string[]): string {
  return items.length < 2
    ? items.join('')
    : `${items.slice(0, -1).join(', ')} or ${items.at(-1) ?? ''}`;
}
