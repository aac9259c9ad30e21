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
  /** Sockets to search; default {@link USUAL_SOCKETS}. Tests set this and the following options. */
  readonly sockets?: readonly string[];
  /** Default: true when this process runs as root. */
  readonly isRoot?: boolean;
  /** Default: `existsSync`. */
  readonly exists?: (path: string) => boolean;
  /** Default: `probeCriRuntime`. */
  readonly probe?: typeof probeCriRuntime;
}

/**
 * Finds the first usable container runtime; otherwise returns, for each socket that exists, the
 * reason why its runtime cannot be used. Only makes calls that change nothing.
 */
export async function detectContainerRuntime(options: DetectionOptions): Promise<DetectionResult> {
  const { socketPath, sockets = USUAL_SOCKETS, isRoot = process.getuid?.() === 0 } = options;
  const { exists = existsSync, probe: probeRuntime = probeCriRuntime } = options;
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
      const probe = await probeRuntime({ ...options, socketPath: candidate });
      const obstacle = findObstacle(probe, candidate, options.shared);
      if (obstacle === undefined) return { kind: 'found', socketPath: candidate, probe };
      failures.push(obstacle);
    } catch (reason) {
      failures.push(errorMessageOf(reason));
    }
  }
  return { kind: 'none', reason: failures.join('; ') };
}

/** Returns the reason why a runtime cannot be used; undefined when the runtime is usable. */
function findObstacle(
  { name, version, ready, notReady, foreign }: CriProbe,
  socketPath: string,
  shared: boolean,
): string | undefined {
  const runtimeText = `${name} ${version} at ${socketPath}`;
  if (!ready) return `${runtimeText} is not ready: ${notReady.join('; ')}`;
  if (shared || foreign.count === 0) return undefined;
  const examples = foreign.names.join(', ') + (foreign.count > foreign.names.length ? ', …' : '');
  return `${runtimeText} is used by other programs (${foreign.count} ${foreign.count === 1 ? 'pod' : 'pods'}: ${examples}); --runtime cri shares it with them`;
}

/** Creates the error for `--runtime cri` without a usable container runtime. */
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
