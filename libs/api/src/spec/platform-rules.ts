import type { Violation } from '@cloudless/base';
import type { WorkloadSpec } from '../gen.js';

/**
 * Processor architectures of nodes, in the spelling of images.
 * @see OCI Image Specification, "Image Index", `platform`
 */
const PROCESSORS = ['amd64', 'arm64', 'arm', '386', 'ppc64le', 's390x', 'riscv64', 'loong64'];

/** Validates the platform of the image. The path of the violation starts with `spec`. */
export function* validatePlatform({ imagePull }: WorkloadSpec): Generator<Violation> {
  const platform = imagePull?.platform ?? '';
  if (platform === '' || PROCESSORS.some((name) => platform === `linux/${name}`)) return;
  const expected = `linux/ and one of ${PROCESSORS.join(', ')}; the image determines the variant, such as v8`;
  yield {
    field: 'spec.image_pull.platform',
    message: `${JSON.stringify(platform)} must be ${expected}`,
  };
}
