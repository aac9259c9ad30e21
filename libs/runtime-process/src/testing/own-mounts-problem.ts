import { spawnSync } from 'node:child_process';

/**
 * Returns why processes cannot have mounts of their own here; undefined when they can. Tests of such
 * processes are skipped then, with this reason.
 */
export function findOwnMountsProblem(): string | undefined {
  if (process.platform !== 'linux') return 'only Linux has mount namespaces';
  if (process.getuid?.() !== 0) return 'mount namespaces need root';
  const script = 'mount --bind /proc/version /proc/version';
  const { status, stderr, error } = spawnSync(
    'unshare',
    ['--mount', '--propagation', 'slave', '--', 'sh', '-c', script],
    { encoding: 'utf8' },
  );
  return status === 0 ? undefined : `no mounts in a namespace: ${error?.message ?? stderr.trim()}`;
}
