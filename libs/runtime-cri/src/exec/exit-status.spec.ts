import { describe, expect, it } from '@jest/globals';
import { parseExitCode } from './exit-status.js';

describe('parseExitCode', () => {
  it.each([
    { text: '{"metadata":{},"status":"Success"}', exitCode: 0 },
    {
      text: '{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated","details":{"causes":[{"reason":"ExitCode","message":"9"}]}}',
      exitCode: 9,
    },
  ])('returns the exit code $exitCode', ({ text, exitCode }) => {
    expect(parseExitCode(text)).toBe(exitCode);
  });

  it.each([
    { message: 'container is in CONTAINER_EXITED state', kind: 'precondition' },
    { message: 'something broke', kind: 'internal' },
  ])('fails with the text of the runtime: $message', ({ message, kind }) => {
    const text = JSON.stringify({ status: 'Failure', reason: 'InternalError', message });
    expect(() => parseExitCode(text)).toThrow(expect.objectContaining({ kind, message }));
  });

  const runc =
    'failed to exec in container: failed to start exec "ab": OCI runtime exec failed: exec failed: unable to start container process';
  it.each([
    {
      says: `${runc}: exec: "nope": executable file not found in $PATH: unknown`,
      exitCode: 127,
      message: 'exec: "nope": executable file not found in $PATH',
    },
    {
      says: `${runc}: exec: "/x": stat /x: no such file or directory: unknown`,
      exitCode: 127,
      message: 'exec: "/x": stat /x: no such file or directory',
    },
    {
      says: `${runc}: exec: "/etc/passwd": permission denied: unknown`,
      exitCode: 126,
      message: 'exec: "/etc/passwd": permission denied',
    },
    {
      says: `${runc}: exec: "/etc": is a directory: unknown`,
      exitCode: 126,
      message: 'exec: "/etc": is a directory',
    },
    {
      says: `${runc}: exec /x: exec format error: unknown`,
      exitCode: 126,
      message: 'exec /x: exec format error',
    },
    {
      says: 'exec: "nope": executable file not found in `$PATH`',
      exitCode: 127,
      message: 'exec: "nope": executable file not found in `$PATH`',
    },
    {
      says: 'crun: executable file `nope` not found in $PATH: No such file or directory',
      exitCode: 127,
      message: 'crun: executable file `nope` not found in $PATH: No such file or directory',
    },
  ])('recognizes a program that could not be executed: $message', ({ says, exitCode, message }) => {
    const text = JSON.stringify({ status: 'Failure', reason: 'InternalError', message: says });
    expect(() => parseExitCode(text)).toThrow(
      expect.objectContaining({ kind: 'invalid', exitCode, message }),
    );
  });

  it.each(['', 'no JSON', '[]', '{"status":"Failure"}'])(
    'fails for an unknown format: %j',
    (text) => {
      expect(() => parseExitCode(text)).toThrow(expect.objectContaining({ kind: 'internal' }));
    },
  );
});
