import {
  toBinary,
  type DescEnum,
  type DescExtension,
  type DescField,
  type DescFile,
  type DescMessage,
  type DescOneof,
  type DescService,
} from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { file_google_rpc_error_details } from '@cloudless/api/grpc';

/**
 * Finds the descriptor file that declares a symbol, among the files of the reflected services, all
 * files that these import, and the file of the error details. Immutable.
 */
export class ReflectionIndex {
  /** Full names of the reflected services, sorted. */
  readonly serviceNames: readonly string[];
  private readonly files = new Map<string, DescFile>();
  private readonly symbols = new Map<string, DescFile>();
  private readonly messages = new Set<string>();
  private readonly extensions = new Map<string, Map<number, DescFile>>();
  private readonly encoded = new Map<DescFile, Uint8Array>();

  constructor(services: readonly DescService[]) {
    this.serviceNames = [...new Set(services.map((service) => service.typeName))].sort();
    for (const service of services) this.addFile(service.file);
    // Details of errors are no part of any RPC; clients that print them look their types up.
    this.addFile(file_google_rpc_error_details);
  }

  /**
   * @param name - Path as in an import, such as `cloudless/api/workload.proto`.
   * @returns Undefined for an unknown file.
   */
  findFileByName(name: string): DescFile | undefined {
    return this.files.get(name);
  }

  /**
   * @param symbol - Full name, without a leading dot, of a service, RPC, message, field, oneof,
   *   enum, enum value or extension.
   * @returns The file that declares the symbol; undefined for an unknown symbol.
   */
  findFileBySymbol(symbol: string): DescFile | undefined {
    return this.symbols.get(symbol);
  }

  /**
   * @param messageName - Full name of the extended message.
   * @returns The file that declares the extension; undefined for an unknown extension.
   */
  findFileByExtension(messageName: string, extensionNumber: number): DescFile | undefined {
    return this.extensions.get(messageName)?.get(extensionNumber);
  }

  /**
   * Returns the numbers of all known extensions of a message, ascending; undefined for an unknown
   * message.
   */
  listExtensionNumbers(messageName: string): readonly number[] | undefined {
    if (!this.messages.has(messageName)) return undefined;
    return [...(this.extensions.get(messageName)?.keys() ?? [])].sort((a, b) => a - b);
  }

  /** Returns a file and all files that it imports, directly or not, each once; the file first. */
  withImports(file: DescFile): readonly DescFile[] {
    const files = new Set([file]);
    // a loop over a set also visits the files that are added meanwhile
    for (const importing of files)
      for (const imported of importing.dependencies) files.add(imported);
    return [...files];
  }

  /** Encodes the FileDescriptorProto of a file in the binary format. Keeps the result. */
  encode(file: DescFile): Uint8Array {
    let bytes = this.encoded.get(file);
    if (bytes === undefined)
      this.encoded.set(file, (bytes = toBinary(FileDescriptorProtoSchema, file.proto)));
    return bytes;
  }

  private addFile(root: DescFile): void {
    for (const file of this.withImports(root)) {
      if (this.files.has(file.proto.name)) continue;
      this.files.set(file.proto.name, file);
      for (const service of file.services) {
        this.symbols.set(service.typeName, file);
        for (const method of service.methods)
          this.symbols.set(`${service.typeName}.${method.name}`, file);
      }
      for (const desc of file.enums) this.addEnum(desc);
      for (const extension of file.extensions) this.addExtension(extension);
      for (const message of file.messages) this.addMessage(message);
    }
  }

  private addMessage(message: DescMessage): void {
    const { file, typeName } = message;
    this.symbols.set(typeName, file);
    this.messages.add(typeName);
    const members: readonly (DescField | DescOneof)[] = [...message.fields, ...message.oneofs];
    for (const member of members) this.symbols.set(`${typeName}.${member.name}`, file);
    for (const desc of message.nestedEnums) this.addEnum(desc);
    for (const extension of message.nestedExtensions) this.addExtension(extension);
    for (const nested of message.nestedMessages) this.addMessage(nested);
  }

  /** Adds an enum and its values, whose names have the scope of the enum itself, as in C++. */
  private addEnum(desc: DescEnum): void {
    this.symbols.set(desc.typeName, desc.file);
    const scope = desc.typeName.slice(0, desc.typeName.lastIndexOf('.') + 1);
    for (const value of desc.values) this.symbols.set(scope + value.name, desc.file);
  }

  private addExtension(extension: DescExtension): void {
    this.symbols.set(extension.typeName, extension.file);
    const extendee = extension.extendee.typeName;
    const numbers = this.extensions.get(extendee) ?? new Map<number, DescFile>();
    this.extensions.set(extendee, numbers.set(extension.number, extension.file));
  }
}
