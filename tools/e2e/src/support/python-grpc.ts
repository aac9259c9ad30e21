import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const SCRIPT = fileURLToPath(new URL('grpc_client.py', import.meta.url));

/** The status of a call with Python. */
export interface PythonStatus {
  readonly code: string;
  readonly message?: string;
  /** `grpc-status-details-bin`, each byte as a character. */
  readonly details?: string;
}

/** A Python that has grpcio; undefined when there is none. */
export const python = ['python3', '/usr/bin/python3'].find((program) => {
  try {
    execFileSync(program, ['-c', 'import grpc'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
});

/**
 * Same as `it`, for tests with Python and grpcio. Without them the test is skipped, and the title
 * has the reason. With `CLOUDLESS_CLIENTS=required`, as in CI, the test fails instead.
 */
export function itWithPython(title: string, body: () => Promise<void>): void {
  if (python !== undefined || process.env['CLOUDLESS_CLIENTS'] === 'required') it(title, body);
  else it.skip(`${title} (no grpcio: apt-get install python3-grpcio)`, body);
}

/** Sends a unary call with grpcio. */
export function callWithPython(address: string, path: string, request: Uint8Array): PythonStatus {
  if (python === undefined) throw new Error('there is no Python with grpcio on this machine');
  const hex = Buffer.from(request).toString('hex');
  return JSON.parse(
    execFileSync(python, [SCRIPT, address, path, hex], { encoding: 'utf8' }),
  ) as PythonStatus;
}
