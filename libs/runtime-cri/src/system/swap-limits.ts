import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { CGROUP_ROOT } from './pids-limit.js';

/**
 * Returns true when the kernel can limit the swap of a cgroup, so that a memory limit covers memory
 * and swap together. A container runtime refuses to start a container with a swap limit when the
 * kernel has none.
 * @param root - Mount point of the cgroup hierarchies.
 * @see Linux kernel, Documentation/admin-guide/cgroup-v1/memory.rst, "memory.memsw.limit_in_bytes";
 *   cgroup-v2.rst, "memory.swap.max" (in every group but the root)
 */
export function canLimitSwap(root = CGROUP_ROOT): boolean {
  if (existsSync(path.join(root, 'memory', 'memory.memsw.limit_in_bytes'))) return true;
  try {
    return readdirSync(root, { withFileTypes: true }).some(
      (entry) => entry.isDirectory() && existsSync(path.join(root, entry.name, 'memory.swap.max')),
    );
  } catch {
    return false;
  }
}
