import { describe, it } from '@jest/globals';
import { describeContainerRuntime } from '@cloudless/runtime/conformance';
import { openRealCriMachine, SKIP_REASON } from './testing/real-cri-machine.js';

if (SKIP_REASON === undefined) {
  describeContainerRuntime('the CRI runtime', {
    open: () => openRealCriMachine(),
    unknownCommand: ['no-such-executable'],
    unexecutableCommand: ['/etc/passwd'],
    rotatingLines: 3_000,
  });
} else {
  describe('the CRI runtime as a container runtime', () => {
    it.skip(`is not tested, because a container runtime is missing: ${SKIP_REASON}`, () =>
      undefined);
  });
}
