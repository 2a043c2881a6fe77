// The steps that devices do together: values combined through a table of collectives.h, whoever
// fills it.

#include <memory>
#include <stdexcept>
#include <vector>

#include "executor.hpp"

namespace shapescript {
namespace {

ShapescriptElement ElementOf(Element element) {
  switch (element) {
    case Element::kF64:
      return SHAPESCRIPT_F64;
    case Element::kF32:
      return SHAPESCRIPT_F32;
    case Element::kF16:
      return SHAPESCRIPT_F16;
    case Element::kBf16:
      return SHAPESCRIPT_BF16;
    case Element::kI64:
      return SHAPESCRIPT_I64;
    case Element::kI32:
      return SHAPESCRIPT_I32;
    case Element::kI16:
      return SHAPESCRIPT_I16;
    case Element::kI8:
      return SHAPESCRIPT_I8;
    default:
      return SHAPESCRIPT_U8;
  }
}

class AllReduceStep : public Step {
 public:
  AllReduceStep(const AllReduce& work, const Binding& binding)
      : ins_(work.ins),
        outs_(work.outs),
        combine_(work.combine),
        half_(work.half),
        in_(ins_.size()),
        out_(in_) {
    const auto axis = static_cast<std::size_t>(work.mesh_axis);
    if (axis >= binding.collectives.size()) {
      throw std::invalid_argument("a plan that combines values of devices is given no way to");
    }
    table_ = binding.collectives[axis];
    element_ = ElementOf(binding.plan.buffers[ins_.at(0)].element);
    for (const std::int32_t whole : half_ == Half::kGather ? outs_ : ins_)
      lengths_.push_back(binding.length(whole));
  }

  bool Run(const Context& context) override {
    for (std::size_t i = 0; i < ins_.size(); ++i) {
      in_[i] = context.buffers[ins_[i]];
      out_[i] = context.buffers[outs_[i]];
    }
    const auto count = static_cast<std::int32_t>(in_.size());
    if (half_ == Half::kGather) {
      return table_->gather_parts(table_->self, in_.data(), out_.data(), lengths_.data(), count,
                                  element_) == 0;
    }
    const auto function = half_ == Half::kReduce ? table_->reduce_parts : table_->all_reduce;
    return function(table_->self, in_.data(), out_.data(), lengths_.data(), count, element_,
                    combine_) == 0;
  }

 private:
  std::vector<std::int32_t> ins_, outs_;
  std::int32_t combine_;
  Half half_;
  std::vector<void*> in_, out_;
  std::vector<std::int64_t> lengths_;
  ShapescriptElement element_ = SHAPESCRIPT_F32;
  const ShapescriptCollectives* table_ = nullptr;
};

}  // namespace

std::unique_ptr<Step> Bind(const AllReduce& work, const Binding& binding) {
  return std::make_unique<AllReduceStep>(work, binding);
}

}  // namespace shapescript
