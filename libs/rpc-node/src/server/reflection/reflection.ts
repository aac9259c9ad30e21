import type { DescFile, DescService } from '@bufbuild/protobuf';
import { Code, type ConnectRouter } from '@connectrpc/connect';
import { ServerReflectionV1, ServerReflectionV1Alpha } from '@cloudless/api/grpc';
import { ReflectionIndex } from './reflection-index.js';

/** The oneof of a request. The messages of v1 and v1alpha both have this shape. */
export type ReflectionRequest =
  | {
      readonly case:
        'listServices' | 'fileByFilename' | 'fileContainingSymbol' | 'allExtensionNumbersOfType';
      readonly value: string;
    }
  | {
      readonly case: 'fileContainingExtension';
      readonly value: { readonly containingType: string; readonly extensionNumber: number };
    }
  | { readonly case: undefined; readonly value?: undefined };

/** The oneof of a response. The messages of v1 and v1alpha both have this shape. */
export type ReflectionResponse =
  | { readonly case: 'listServicesResponse'; readonly value: { service: { name: string }[] } }
  | {
      readonly case: 'fileDescriptorResponse';
      readonly value: { fileDescriptorProto: Uint8Array[] };
    }
  | {
      readonly case: 'allExtensionNumbersResponse';
      readonly value: { baseTypeName: string; extensionNumber: number[] };
    }
  | { readonly case: 'errorResponse'; readonly value: { errorCode: number; errorMessage: string } };

/**
 * Responds to the requests of one reflection stream. Sends a file with all its imports, except the
 * imports that the stream has sent before.
 */
export class ReflectionStream {
  private readonly sent = new Set<DescFile>();

  constructor(private readonly index: ReflectionIndex) {}

  /** Responds to one request. An unknown name gives an `errorResponse`, not an exception. */
  respond(request: ReflectionRequest): ReflectionResponse {
    switch (request.case) {
      case 'listServices':
        return {
          case: 'listServicesResponse',
          value: { service: this.index.serviceNames.map((name) => ({ name })) },
        };
      case 'fileByFilename':
        return this.createFileResponse(
          this.index.findFileByName(request.value),
          `file ${request.value}`,
        );
      case 'fileContainingSymbol':
        return this.createFileResponse(
          this.index.findFileBySymbol(request.value),
          `symbol ${request.value}`,
        );
      case 'fileContainingExtension': {
        const { containingType, extensionNumber } = request.value;
        const file = this.index.findFileByExtension(containingType, extensionNumber);
        return this.createFileResponse(file, `extension ${extensionNumber} of ${containingType}`);
      }
      case 'allExtensionNumbersOfType': {
        const numbers = this.index.listExtensionNumbers(request.value);
        if (numbers === undefined)
          return createErrorResponse(Code.NotFound, `this server has no message ${request.value}`);
        return {
          case: 'allExtensionNumbersResponse',
          value: { baseTypeName: request.value, extensionNumber: [...numbers] },
        };
      }
      case undefined:
        return createErrorResponse(
          Code.InvalidArgument,
          'the request is empty; set list_services, a file name or a symbol',
        );
    }
  }

  private createFileResponse(file: DescFile | undefined, description: string): ReflectionResponse {
    if (file === undefined)
      return createErrorResponse(Code.NotFound, `this server has no ${description}`);
    const files = this.index
      .withImports(file)
      .filter((candidate) => candidate === file || !this.sent.has(candidate));
    for (const sentFile of files) this.sent.add(sentFile);
    return {
      case: 'fileDescriptorResponse',
      value: { fileDescriptorProto: files.map((sentFile) => this.index.encode(sentFile)) },
    };
  }
}

function createErrorResponse(errorCode: Code, errorMessage: string): ReflectionResponse {
  return { case: 'errorResponse', value: { errorCode, errorMessage } };
}

/** Adds gRPC server reflection, v1 and v1alpha, for `services` and for reflection itself. */
export function registerReflectionService(
  router: ConnectRouter,
  services: readonly DescService[],
): void {
  const index = new ReflectionIndex([...services, ServerReflectionV1, ServerReflectionV1Alpha]);
  router.service(ServerReflectionV1, {
    serverReflectionInfo: async function* (requests) {
      const stream = new ReflectionStream(index);
      for await (const request of requests) {
        yield {
          validHost: request.host,
          originalRequest: request,
          messageResponse: stream.respond(request.messageRequest),
        };
      }
    },
  });
  router.service(ServerReflectionV1Alpha, {
    serverReflectionInfo: async function* (requests) {
      const stream = new ReflectionStream(index);
      for await (const request of requests) {
        yield {
          validHost: request.host,
          originalRequest: request,
          messageResponse: stream.respond(request.messageRequest),
        };
      }
    },
  });
}
