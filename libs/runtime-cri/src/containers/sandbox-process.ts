import { readCommandLine, readProcess, type HostProcess } from '../system/host-processes.js';

/**
 * Reads the process of a sandbox. Its parent, containerd's shim, starts the processes of the
 * container.
 * @param pid - Process id of the sandbox; undefined when the runtime does not report it.
 * @returns Undefined when the process is no sandbox of containerd, for example because the container
 *   runtime counts processes in a namespace of its own.
 */
export function readSandboxProcess(pid: number | undefined): HostProcess | undefined {
  const sandbox = pid === undefined ? undefined : readProcess(pid);
  if (sandbox === undefined) return undefined;
  const [program = ''] = readCommandLine(sandbox.parentPid);
  return program.includes('containerd-shim') ? sandbox : undefined;
}
